//! Divides a grammar into lexemes, each matched by one automaton.
//!
//! llguidance reads a text lexeme by lexeme, and makes each lexeme as long as possible. At every
//! byte that continues some lexeme, it gives up the shorter ones. GBNF has no such rule, so a part
//! of a grammar may be a lexeme only if this choice never matters. Long lexemes are much faster.
//!
//! At first, every part without recursion is a lexeme. Then pairs of conflicting lexemes are
//! searched: both can start at the same position, and one can end where the other continues with a
//! byte that may also follow the first. In each pair, the lexeme that continues is split into its
//! parts. Single characters are never split: in UTF-8, no character is a prefix of another.

mod languages;
mod places;

use places::{Lexeme, Places};

use super::rules::{Node, NodeId, Rules};

/// Maximum rounds of splits. In a grammar that needs more, or is too large, each character is a
/// lexeme.
const ROUNDS_MAX: usize = 16;

/// A part of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'n> {
    /// Nodes that are one lexeme.
    Lexeme(&'n [NodeId]),
    /// A node that is not a lexeme.
    Node(NodeId),
}

/// A grammar, divided into lexemes.
#[derive(Debug)]
pub struct Lexemes<'r> {
    rules: &'r Rules,
    /// Whether each node is split into its parts.
    split: Vec<bool>,
    /// Whether each node is a lexeme or a part of one.
    regular: Vec<bool>,
}

impl<'r> Lexemes<'r> {
    /// Divides a grammar into the largest lexemes that do not change its meaning.
    pub fn new(rules: &'r Rules) -> Self {
        let mut lexemes =
            Lexemes { rules, split: vec![false; rules.nodes.len()], regular: Vec::new() };
        for _ in 0..ROUNDS_MAX {
            lexemes.regular = Regular::of(rules, &lexemes.split);
            match Places::new(&lexemes).conflicts() {
                Some(conflicts) if conflicts.is_empty() => return lexemes,
                Some(conflicts) => {
                    conflicts.into_iter().for_each(|node| lexemes.split[node] = true)
                }
                None => break,
            }
        }
        let more_than_one = |node: &Node| !matches!(node, Node::Class(_));
        lexemes.split = rules.nodes.iter().map(more_than_one).collect();
        lexemes.regular = Regular::of(rules, &lexemes.split);
        lexemes
    }

    /// Returns whether a node is a lexeme, or a part of one.
    pub fn is_regular(&self, node: NodeId) -> bool {
        self.regular[node]
    }

    /// Returns the parts of a sequence that is not a lexeme.
    pub fn parts(&self, sequence: NodeId) -> Vec<Part<'r>> {
        let Node::Sequence(items) = &self.rules.nodes[sequence] else { return Vec::new() };
        let together =
            |a: &NodeId, b: &NodeId| !self.split[sequence] && self.regular[*a] && self.regular[*b];
        let part = |nodes: &'r [NodeId]| match nodes {
            &[node] if !self.regular[node] => Part::Node(node),
            nodes => Part::Lexeme(nodes),
        };
        items.chunk_by(together).map(part).collect()
    }

    /// Returns the node to split if a lexeme is too long.
    fn node_to_split(&self, lexeme: Lexeme) -> Option<NodeId> {
        let mut node = match lexeme {
            Lexeme::Token => return None,
            Lexeme::Nodes(&[node], _) => node,
            Lexeme::Nodes(_, sequence) => return Some(sequence),
        };
        while let Node::Rule(rule) = self.rules.nodes[node] {
            node = self.rules.bodies[rule];
        }
        (!matches!(self.rules.nodes[node], Node::Class(_))).then_some(node)
    }
}

/// Finds the nodes without recursion, tokens and split nodes.
struct Regular<'r> {
    rules: &'r Rules,
    split: &'r [bool],
    /// Whether each rule is regular; `Some(None)` during its examination.
    known: Vec<Option<Option<bool>>>,
    regular: Vec<bool>,
}

impl Regular<'_> {
    fn of(rules: &Rules, split: &[bool]) -> Vec<bool> {
        let known = vec![None; rules.bodies.len()];
        let mut search = Regular { rules, split, known, regular: vec![false; rules.nodes.len()] };
        (0..rules.bodies.len()).for_each(|rule| _ = search.rule(rule));
        search.regular
    }

    fn rule(&mut self, rule: usize) -> bool {
        if let Some(known) = self.known[rule] {
            // A rule that is reached during its own examination contains itself.
            return known.unwrap_or(false);
        }
        self.known[rule] = Some(None);
        let regular = self.node(self.rules.bodies[rule]);
        self.known[rule] = Some(Some(regular));
        regular
    }

    fn node(&mut self, node: NodeId) -> bool {
        let regular = match &self.rules.nodes[node] {
            Node::Class(_) => true,
            Node::Token(_) => false,
            // Examine all parts, since each needs a result.
            Node::Sequence(parts) | Node::Choice(parts) => {
                let regular: Vec<_> = parts.iter().map(|part| self.node(*part)).collect();
                regular.into_iter().all(|regular| regular)
            }
            Node::Repeat(part, ..) => self.node(*part),
            Node::Rule(rule) => self.rule(*rule),
        };
        self.regular[node] = regular && !self.split[node];
        self.regular[node]
    }
}
