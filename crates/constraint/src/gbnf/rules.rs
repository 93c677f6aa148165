//! The rules of a GBNF grammar, as a list of nodes that refer to each other.

use std::fmt::Write;

use crate::error::Position;

/// The index of a node.
pub type NodeId = usize;

/// A part of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// One character.
    Class(Class),
    /// One token, not text.
    Token(Reference),
    /// A list of nodes, in order.
    Sequence(Vec<NodeId>),
    /// One of these nodes.
    Choice(Vec<NodeId>),
    /// A node, repeated between a minimum and an optional maximum of times.
    Repeat(NodeId, u32, Option<u32>),
    /// The rule with this number.
    Rule(usize),
}

/// A reference to a token: `<[7]>`, `<think>`, or excluded `!<think>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The token's number in brackets, or its text.
    pub name: String,
    /// Whether the reference means all other tokens.
    pub excluded: bool,
    /// The position in the grammar.
    pub position: Position,
}

/// The rules of a grammar. The numbers in its nodes are valid.
#[derive(Debug)]
pub struct Rules {
    /// All nodes.
    pub nodes: Vec<Node>,
    /// The node of each rule.
    pub bodies: Vec<NodeId>,
    /// The rule for the whole text.
    pub root: usize,
}

/// A set of characters: ordered ranges that neither overlap nor touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class(Vec<(char, char)>);

impl Class {
    /// Creates the set of characters in any of the ranges.
    pub fn new(mut ranges: Vec<(char, char)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(char, char)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(previous) if after(previous.1).is_none_or(|next| first <= next) => {
                    previous.1 = previous.1.max(last);
                }
                _ => merged.push((first, last)),
            }
        }
        Class(merged)
    }

    /// Returns the set of all characters that are not in this set.
    pub fn complement(&self) -> Self {
        let mut ranges = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some('\0');
        for &(first, last) in &self.0 {
            if let (Some(start), Some(end)) = (next, before(first))
                && start <= end
            {
                ranges.push((start, end));
            }
            next = after(last);
        }
        ranges.extend(next.map(|start| (start, char::MAX)));
        Class(ranges)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ranges.
    pub fn ranges(&self) -> &[(char, char)] {
        &self.0
    }

    /// Writes the set as a regular expression.
    pub fn write_regex(&self, out: &mut String) {
        // Writing to a string cannot fail.
        let mut put = |c: char| _ = write!(out, "\\x{{{:x}}}", u32::from(c));
        if let [(first, last)] = self.0[..]
            && first == last
        {
            return put(first);
        }
        out.push('[');
        for &(first, last) in &self.0 {
            let _ = write!(out, "\\x{{{:x}}}-\\x{{{:x}}}", u32::from(first), u32::from(last));
        }
        out.push(']');
    }
}

fn after(c: char) -> Option<char> {
    (c..=char::MAX).nth(1)
}

fn before(c: char) -> Option<char> {
    ('\0'..c).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_merged_and_complemented() {
        let class = Class::new(vec![('d', 'f'), ('a', 'b'), ('c', 'c'), ('x', 'x'), ('e', 'e')]);
        assert_eq!(class.ranges(), [('a', 'f'), ('x', 'x')]);
        let others = class.complement();
        assert_eq!(others.ranges(), [('\0', '`'), ('g', 'w'), ('y', char::MAX)]);
        assert_eq!(others.complement(), class);
        let all = Class::new(vec![('\0', '\u{d7ff}'), ('\u{e000}', char::MAX)]);
        assert_eq!(all.ranges(), [('\0', char::MAX)]);
        assert!(all.complement().is_empty());
        assert_eq!(all.complement().complement(), all);
    }
}
