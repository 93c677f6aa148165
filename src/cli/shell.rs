//! `rope-cpu completions` and `rope-cpu man`: shell completions and manual pages.
//!
//! clap_complete writes scripts that know the options. For bash, zsh and fish, lines at their end ask
//! `rope-cpu complete names` for the names of models.

use std::{fs, io::Write, path::PathBuf};

use clap_complete::Shell;

use super::{Error, args::ShelfArgs, command};

/// The options of `completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Shell that the script is for
    shell: Shell,
}

/// The options of `complete`, which completion scripts run.
#[derive(Debug, clap::Args)]
pub struct CompleteArgs {
    /// Words to print
    what: Words,

    #[command(flatten)]
    shelf: ShelfArgs,
}

/// Words that only the program knows.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Words {
    /// Names of models.
    Names,
}

/// Completes names in bash: after a command or an option that takes one. A colon starts a new word
/// there, so what is before it is removed from each name.
const BASH: &str = r#"
_rope_cpu_with_names() {
    local cur=${COMP_LINE:0:COMP_POINT} prev word
    cur=${cur##* }
    word=${COMP_LINE:0:COMP_POINT}
    word=${word% *}
    prev=${word##* }
    case $prev in
        run | serve | open | show | rm | cp | stop | -m | --model | -md | --spec-draft-model | \
            aider | claude | codex | opencode | qwen)
            if [[ $cur != -* ]]; then
                COMPREPLY=($(compgen -W "$(rope-cpu complete names 2>/dev/null)" -- "$cur"))
                local before=${cur%"${cur##*:}"}
                [[ $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"$before"}")
                [[ $prev == -m || $prev == --model ]] && COMPREPLY+=($(compgen -f -- "$cur"))
                return
            fi
            ;;
    esac
    _rope__cpu "$@"
}
complete -F _rope_cpu_with_names -o nosort -o bashdefault -o default rope-cpu 2>/dev/null ||
    complete -F _rope_cpu_with_names -o bashdefault -o default rope-cpu
"#;

/// First line of the end of clap's script for zsh, which calls or registers its function.
const ZSH_END: &str = "if [ \"$funcstack[1]\" = \"_rope-cpu\" ]; then";

/// Completes names in zsh, in place of the end of clap's script. The script may be sourced, or be the
/// file `_rope-cpu` that zsh loads at the first completion.
const ZSH: &str = r#"_rope-cpu-with-names() {
    case ${words[CURRENT-1]} in
        run|serve|open|show|rm|cp|stop|-m|--model|-md|--spec-draft-model|aider|claude|codex|opencode|qwen)
            compadd -- ${(f)"$(rope-cpu complete names 2>/dev/null)"}
            ;;
    esac
    _rope-cpu "$@"
}
(( $+functions[compdef] )) && compdef _rope-cpu-with-names rope-cpu
if [ "$funcstack[1]" = "_rope-cpu" ]; then
    _rope-cpu-with-names "$@"
fi
"#;

/// Completes names in fish.
const FISH: &str = r#"
complete -c rope-cpu -n "__fish_seen_subcommand_from run serve open show rm cp stop launch" -a "(rope-cpu complete names 2>/dev/null)"
complete -c rope-cpu -s m -l model -r -a "(rope-cpu complete names 2>/dev/null)"
complete -c rope-cpu -o md -l spec-draft-model -r -a "(rope-cpu complete names 2>/dev/null)"
"#;

/// The options of `man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Folder for one page per command; by default one page is printed
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Prints a shell's completion script.
///
/// # Errors
/// If `out` cannot be written.
pub fn completions(args: &CompletionsArgs, out: &mut dyn Write) -> Result<(), Error> {
    // Generated in memory, since clap_complete panics if a pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "rope-cpu", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    let names = match args.shell {
        Shell::Bash => BASH,
        Shell::Zsh => {
            script.truncate(script.rfind(ZSH_END).unwrap_or(script.len()));
            ZSH
        }
        Shell::Fish => FISH,
        // Options alone.
        _ => "",
    };
    out.write_all(script.as_bytes())?;
    Ok(out.write_all(names.as_bytes())?)
}

/// Prints words for completion. A shelf that cannot be read has none: a message would appear in the
/// middle of a command line. A name with other than plain characters is left out, since bash expands
/// the words of a list, and the name of a downloaded file could be a command.
///
/// # Errors
/// If `out` cannot be written.
pub fn complete(args: &CompleteArgs, out: &mut dyn Write) -> Result<(), Error> {
    let Words::Names = args.what;
    for entry in args.shelf.shelf().entries().unwrap_or_default() {
        if entry.name.chars().all(is_plain) {
            writeln!(out, "{}", entry.name)?;
        }
    }
    Ok(())
}

/// Returns whether shells and URLs take a character literally.
pub fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-:/@+".contains(c)
}

/// Prints or writes manual pages.
///
/// # Errors
/// If `out` or the folder cannot be written.
pub fn man(args: &ManArgs, out: &mut dyn Write) -> Result<(), Error> {
    match &args.folder {
        None => Ok(clap_mangen::Man::new(command()).render(out)?),
        Some(folder) => {
            let written = fs::create_dir_all(folder);
            written.and_then(|()| clap_mangen::generate_to(command(), folder)).map_err(|e| {
                Error::failed(format_args!("cannot write pages to {}: {e}", folder.display()))
            })
        }
    }
}
