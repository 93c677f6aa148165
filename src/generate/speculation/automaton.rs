//! A suffix automaton: all substrings of a text, each with the end of a recent occurrence.
//!
//! Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985). A state
//! represents substrings that end at the same positions; the longest has `len` tokens. The state of
//! the whole text links to the state of the longest suffix that also occurs earlier. Adding a token
//! takes O(1), amortised. There are at most 2 states and 3 edges per token.

use std::collections::HashMap;

use crate::Token;

/// The number of a state.
type State = u32;
/// The state of the empty text.
const ROOT: State = 0;
/// No state, or no edge.
const NONE: u32 = u32::MAX;

/// Maximum states that record a new occurrence. A repetitive text could have one per token; there,
/// earlier occurrences serve as well.
const RECORDED: usize = 16;

/// The automaton of a text.
#[derive(Debug)]
pub struct SuffixAutomaton {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// The index of the edge of a state and a token.
    index: HashMap<(State, Token), u32>,
    /// The state of the whole text.
    last: State,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The length of the longest substring of the state.
    len: u32,
    /// The state of the longest suffix of these substrings that also occurs elsewhere.
    link: State,
    /// The number of tokens up to the end of a recent occurrence.
    end: u32,
    /// The first edge in the list of this state's edges.
    edge: u32,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    token: Token,
    to: State,
    /// The next edge of the same state.
    next: u32,
}

/// The longest suffix of a text that also occurs earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The length of the suffix in tokens.
    pub len: usize,
    /// The number of tokens up to the end of an earlier occurrence: the most recent one, except in
    /// long repetitions.
    pub end: usize,
}

impl SuffixAutomaton {
    /// Creates the automaton of the empty text.
    pub fn new() -> Self {
        let root = Node { len: 0, link: NONE, end: 0, edge: NONE };
        let (edges, index) = (Vec::new(), HashMap::new());
        SuffixAutomaton { nodes: vec![root], edges, index, last: ROOT }
    }

    /// Returns the number of tokens of the text.
    pub fn len(&self) -> usize {
        self.nodes[self.last as usize].len as usize
    }

    /// Adds a token to the text. Returns the longest suffix that also occurs earlier; `None` for a
    /// new token.
    pub fn push(&mut self, token: Token) -> Option<Match> {
        let len = self.nodes[self.last as usize].len + 1;
        let new = self.add_node(Node { len, link: ROOT, end: len, edge: NONE });
        let mut state = self.last;
        while state != NONE && !self.index.contains_key(&(state, token)) {
            self.add_edge(state, token, new);
            state = self.nodes[state as usize].link;
        }
        if state != NONE {
            self.nodes[new as usize].link = self.suffix(state, token);
        }
        self.last = new;
        let link = self.nodes[new as usize].link;
        let Node { len: found, end, .. } = self.nodes[link as usize];
        self.record(link, len);
        (link != ROOT).then_some(Match { len: found as usize, end: end as usize })
    }

    /// Returns the state of the longest substring of `state` followed by a token. Splits it from
    /// the state of longer substrings if necessary.
    fn suffix(&mut self, state: State, token: Token) -> State {
        let long = self.target(state, token);
        let len = self.nodes[state as usize].len + 1;
        if self.nodes[long as usize].len == len {
            return long;
        }
        let short = self.add_node(Node { len, edge: NONE, ..self.nodes[long as usize] });
        let mut edge = self.nodes[long as usize].edge;
        while edge != NONE {
            let Edge { token, to, next } = self.edges[edge as usize];
            self.add_edge(short, token, to);
            edge = next;
        }
        self.nodes[long as usize].link = short;
        let mut state = state;
        while state != NONE && self.target(state, token) == long {
            let edge = self.index[&(state, token)];
            self.edges[edge as usize].to = short;
            state = self.nodes[state as usize].link;
        }
        short
    }

    /// Records an occurrence, up to `end`, of the substrings of a state and of their suffixes.
    fn record(&mut self, mut state: State, end: u32) {
        for _ in 0..RECORDED {
            if state == ROOT {
                return;
            }
            let node = &mut self.nodes[state as usize];
            node.end = end;
            state = node.link;
        }
    }

    /// Returns the state that an edge leads to.
    fn target(&self, state: State, token: Token) -> State {
        self.index.get(&(state, token)).map_or(NONE, |&edge| self.edges[edge as usize].to)
    }

    fn add_node(&mut self, node: Node) -> State {
        self.nodes.push(node);
        self.nodes.len() as State - 1
    }

    fn add_edge(&mut self, from: State, token: Token, to: State) {
        let edge = self.edges.len() as u32;
        let first = &mut self.nodes[from as usize].edge;
        self.edges.push(Edge { token, to, next: *first });
        *first = edge;
        self.index.insert((from, token), edge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the longest suffix that also occurs earlier, and the end of its last earlier
    /// occurrence.
    fn by_search(text: &[Token]) -> Option<Match> {
        let n = text.len();
        (1..n).rev().find_map(|len| {
            let found = (len..n).rev().find(|&end| text[end - len..end] == text[n - len..]);
            found.map(|end| Match { len, end })
        })
    }

    #[test]
    fn matches_are_the_longest_and_the_most_recent() {
        let mut state = 1u64;
        for letters in [2, 3, 5, 20] {
            let (mut automaton, mut text) = (SuffixAutomaton::new(), Vec::new());
            for _ in 0..600 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push((state >> 33) as Token % letters);
                assert_eq!(automaton.push(text[text.len() - 1]), by_search(&text), "{text:?}");
            }
            assert_eq!(automaton.len(), text.len());
            assert!(automaton.nodes.len() <= 2 * text.len());
            assert!(automaton.edges.len() <= 3 * text.len());
        }
    }

    #[test]
    fn a_repetition_is_found_at_every_length() {
        let mut automaton = SuffixAutomaton::new();
        assert_eq!(automaton.push(7), None);
        for i in 1..5000 {
            let found = automaton.push(7).unwrap();
            assert_eq!(found.len, i);
            assert!(found.end <= i && found.end >= i.min(found.len));
        }
    }
}
