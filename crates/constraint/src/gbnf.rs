//! Translates GBNF, llama.cpp's grammar format, to Lark.

mod lexemes;
mod parse;
mod recursion;
#[cfg(test)]
mod reference;
mod rules;

use std::fmt::Write;

use llguidance::toktrie::TokTrie;

use super::error::Error;
use lexemes::{Lexemes, Part};
use rules::{Node, NodeId, Reference, Rules};

/// Returns a Lark grammar for the same language. `tokens` has the tokens that it can name.
///
/// # Errors
/// Returns an error if the grammar is invalid, or names an unknown token.
pub fn to_lark(text: &str, tokens: &TokTrie) -> Result<String, Error> {
    let mut rules = parse::parse(text)?;
    recursion::unroll(&mut rules);
    let lexemes = Lexemes::new(&rules);
    let written = vec![false; rules.nodes.len()];
    let mut writer =
        Writer { rules: &rules, lexemes, tokens, written, todo: Vec::new(), out: String::new() };
    let root = writer.reference(rules.bodies[rules.root])?;
    let mut start = format!("start: {root}\n");
    while let Some(node) = writer.todo.pop() {
        writer.define(node)?;
    }
    start += &writer.out;
    Ok(start)
}

/// Writes a definition for each node of more than one character: a rule `n7`, or a terminal `N7` if
/// the node is a lexeme or part of one.
struct Writer<'g> {
    rules: &'g Rules,
    lexemes: Lexemes<'g>,
    tokens: &'g TokTrie,
    /// Whether each node has a definition, written or pending.
    written: Vec<bool>,
    todo: Vec<NodeId>,
    out: String,
}

impl<'g> Writer<'g> {
    /// Returns a reference to a node, for a definition.
    fn reference(&mut self, node: NodeId) -> Result<String, Error> {
        let rules = self.rules;
        match &rules.nodes[node] {
            Node::Class(_) => Ok(self.characters(&[node])),
            Node::Token(token) => self.token(token),
            Node::Sequence(items) if items.is_empty() => Ok(r#""""#.into()),
            Node::Repeat(_, _, Some(0)) => Ok(r#""""#.into()),
            _ => {
                if !std::mem::replace(&mut self.written[node], true) {
                    self.todo.push(node);
                }
                let name = if self.lexemes.is_regular(node) { 'N' } else { 'n' };
                Ok(format!("{name}{node}"))
            }
        }
    }

    fn define(&mut self, node: NodeId) -> Result<(), Error> {
        let name = self.reference(node)?;
        let rules = self.rules;
        let definition = match &rules.nodes[node] {
            Node::Class(_) | Node::Token(_) => return Ok(()),
            Node::Rule(rule) => self.reference(rules.bodies[*rule])?,
            Node::Choice(options) => {
                let options: Result<Vec<_>, _> =
                    options.iter().map(|option| self.reference(*option)).collect();
                options?.join(" | ")
            }
            Node::Repeat(part, least, most) => {
                let part = self.reference(*part)?;
                let most = most.map(|most| most.to_string()).unwrap_or_default();
                format!("{part}{{{least},{most}}}")
            }
            Node::Sequence(items) if self.lexemes.is_regular(node) => self.lexeme(items)?,
            Node::Sequence(_) => {
                let mut definition = String::new();
                for (i, part) in self.lexemes.parts(node).into_iter().enumerate() {
                    definition += &match part {
                        Part::Node(item) | Part::Lexeme(&[item]) => self.reference(item)?,
                        Part::Lexeme(items) => {
                            let (name, lexeme) = (format!("N{node}_{i}"), self.lexeme(items)?);
                            let _ = writeln!(self.out, "{name}: {lexeme}");
                            name
                        }
                    };
                    definition.push(' ');
                }
                definition
            }
        };
        let _ = writeln!(self.out, "{name}: {definition}");
        Ok(())
    }

    /// Returns the definition of a lexeme of these nodes.
    fn lexeme(&mut self, items: &'g [NodeId]) -> Result<String, Error> {
        let rules = self.rules;
        let is_class = |item: &NodeId| matches!(rules.nodes[*item], Node::Class(_));
        let mut definition = String::new();
        for part in items.chunk_by(|a, b| is_class(a) && is_class(b)) {
            definition += &match part {
                [item] if !is_class(item) => self.reference(*item)?,
                classes => self.characters(classes),
            };
            definition.push(' ');
        }
        Ok(definition)
    }

    /// Returns a regular expression of one character for each class.
    fn characters(&self, classes: &[NodeId]) -> String {
        let mut regex = "/".to_string();
        for class in classes {
            if let Node::Class(class) = &self.rules.nodes[*class] {
                class.write_regex(&mut regex);
            }
        }
        regex + "/"
    }

    /// Returns the tokens of a reference.
    fn token(&self, Reference { name, excluded, position }: &Reference) -> Result<String, Error> {
        let len = self.tokens.vocab_size();
        let number = name.strip_prefix("<[").and_then(|number| number.strip_suffix("]>"));
        let token = match number {
            Some(number) => number.parse().ok().filter(|token| (*token as usize) < len),
            None => self
                .tokens
                .get_special_token(name)
                .or_else(|| self.tokens.token_id_at_bytes(name.as_bytes())),
        };
        let token = token.ok_or_else(|| {
            Error::invalid(Some(position.clone()), format!("the vocabulary has no token {name}"))
        })?;
        if !excluded {
            return Ok(format!("<[{token}]>"));
        }
        // Tokens that end an answer also end it here.
        let mut others = vec![token];
        others.extend(self.tokens.eos_tokens().iter().filter(|end| (**end as usize) < len));
        let others: Vec<_> = others.iter().map(u32::to_string).collect();
        Ok(format!("<[^{}]>", others.join(",")))
    }
}
