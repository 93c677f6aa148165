//! Limits on the source of a template, before it is parsed.
//!
//! The parser, the code generator and the destructor of the syntax tree recurse along operators,
//! filters and `elif`. The parser itself bounds visible nesting: brackets and blocks.

use minijinja::{
    Error, ErrorKind,
    machinery::{Token, tokenize},
    syntax::SyntaxConfig,
};

/// Maximum bytes. The largest templates of models have 20 KB.
const SIZE: usize = 256 << 10;

/// Maximum words and signs in one tag; a string counts as one.
const TOKENS: usize = 4_000;

/// Maximum `elif` in the whole source.
const BRANCHES: usize = 1_000;

/// Maximum bytes of a name.
const NAME: usize = 256;

/// # Errors
/// If the source is above a limit or has no tokens; the error names the line.
pub(super) fn check(source: &str, syntax: SyntaxConfig) -> Result<(), Error> {
    let large = |what: String| Err(Error::new(ErrorKind::SyntaxError, what));
    if source.len() > SIZE {
        return large(format!("the source has {} bytes, of {SIZE} at most", source.len()));
    }
    let (mut tokens, mut branches) = (0, 0);
    for token in tokenize(source, false, syntax) {
        let (token, span) = token?;
        let line = span.start_line;
        match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => {
                tokens = 0;
                continue;
            }
            Token::Ident(name) if name.len() > NAME => {
                return large(format!("a name has more than {NAME} bytes (line {line})"));
            }
            Token::Ident("elif") if tokens == 0 => branches += 1,
            Token::Int128(x) if i128::try_from(*x).is_err() => {
                return large(format!("{x} is too large: integers have 128 bits (line {line})"));
            }
            _ => {}
        }
        tokens += 1;
        if tokens > TOKENS {
            return large(format!("a tag has more than {TOKENS} words (line {line})"));
        }
        if branches > BRANCHES {
            return large(format!("there are more than {BRANCHES} elif (line {line})"));
        }
    }
    Ok(())
}
