//! The settings of RoPE, runs and the samplers in `python/rope_cpu/settings.py`, for type checkers and
//! editors. After a setting has changed, this command writes the file:
//!
//! ```text
//! PYTHON_SETTINGS=write cargo test --test library python_settings
//! ```

use std::{env, fmt::Write, fs};

use rope_cpu::{
    rope,
    runtime::parameters,
    sample,
    settings::{Kind, Parameter},
};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rope_cpu/settings.py");

#[test]
fn the_python_package_has_the_settings() {
    let found = module();
    if env::var("PYTHON_SETTINGS").is_ok_and(|value| value == "write") {
        fs::write(FILE, &found).unwrap();
    }
    assert_eq!(
        fs::read_to_string(FILE).unwrap(),
        found,
        "write python/rope_cpu/settings.py anew: PYTHON_SETTINGS=write cargo test --test library \
         python_settings"
    );
}

fn module() -> String {
    let mut text = String::from(
        "\"\"\"The settings of RoPE, of a run and of the samplers, as keyword arguments.\n\
         \n\
         A test of the library writes this file:\n\
         PYTHON_SETTINGS=write cargo test --test library python_settings\n\
         \"\"\"\n\
         \n\
         from __future__ import annotations\n\
         \n\
         import os\n\
         from collections.abc import Sequence\n\
         from typing import TypedDict\n",
    );
    let rope = rope::parameters().map(|parameter| (parameter, &[][..]));
    let about = "The RoPE settings, with their names on the command line.";
    add_class(&mut text, "RopeOptions", about, rope);
    let run = parameters::all().map(|parameter| (parameter, &[][..]));
    let about = "The settings of a run: its cache, sparse attention and drafts.";
    add_class(&mut text, "RunOptions", about, run);
    let sampling = sample::settings().map(|setting| &setting.parameter);
    let about = "The settings of the samplers. Defaults are the file's, else those shown here.";
    add_class(&mut text, "SamplingOptions", about, sampling.map(|p| (p, p.aliases)));
    text
}

/// Adds a class with a key for each parameter, and one for each of its other names.
fn add_class(
    text: &mut String,
    name: &str,
    about: &str,
    rows: impl Iterator<Item = (&'static Parameter, &'static [&'static str])>,
) {
    write!(text, "\n\nclass {name}(TypedDict, total=False):\n    \"\"\"{about}\"\"\"\n\n").unwrap();
    for (parameter, others) in rows {
        let (name, of_python) = (parameter.setting.0, type_of(parameter.kind));
        let default = parameter.default.map_or(String::new(), |n| format!(" [default: {n}]"));
        writeln!(text, "    #: {}{default}", parameter.summary).unwrap();
        writeln!(text, "    {name}: {of_python}").unwrap();
        for other in others {
            writeln!(text, "    #: Another name of `{name}`.\n    {other}: {of_python}").unwrap();
        }
    }
}

/// Returns Python's type of a kind of values.
fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Number | Kind::Between(..) => "float",
        Kind::Integer(..) | Kind::Whole(_) => "int",
        Kind::Word(_) => "str",
        Kind::Words(_) => "str | Sequence[str]",
        Kind::Switch => "bool",
        Kind::Path => "str | os.PathLike[str]",
    }
}
