//! Finds any number of strings in one pass (Aho and Corasick, 1975).
//!
//! The strings form a tree, with a node for each of their prefixes. After each byte of the input,
//! the current node is the longest suffix of the input that is a prefix of a string. If no string
//! continues it with the next byte, the next shorter suffix is tried. So the work for a byte is
//! constant on average.

use std::{collections::HashMap, fmt};

/// A node of the tree: a prefix of one or more strings.
pub type Node = u32;

/// The empty prefix.
pub const ROOT: Node = 0;

/// The strings to find.
#[derive(Default)]
pub struct Patterns {
    texts: Vec<String>,
    /// The children of [`ROOT`] by their byte; `ROOT` for none.
    first: Vec<Node>,
    /// The children of all other nodes.
    next: HashMap<(Node, u8), Node>,
    nodes: Vec<State>,
}

/// A node: a prefix of one or more strings.
#[derive(Clone, Copy, Default)]
struct State {
    /// The length of the prefix in bytes.
    depth: u32,
    /// The longest proper suffix of the prefix that is also a node.
    suffix: Node,
    /// The index of the string that equals the prefix.
    text: Option<u32>,
    /// The index of the longest string that is a suffix of the prefix, or the prefix itself.
    found: Option<u32>,
}

impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Patterns").field(&self.texts).finish()
    }
}

impl Patterns {
    /// Builds the tree. Empty strings are never found.
    pub fn new(texts: Vec<String>) -> Self {
        let mut patterns = Patterns {
            texts,
            first: vec![ROOT; 256],
            next: HashMap::new(),
            nodes: vec![State::default()],
        };
        // Nodes are created level by level, so parents come before children.
        let mut ends = vec![ROOT; patterns.texts.len()];
        let mut longer: Vec<_> = (0..ends.len()).collect();
        for depth in 0.. {
            longer.retain(|index| patterns.texts[*index].len() > depth);
            if longer.is_empty() {
                break;
            }
            for &index in &longer {
                let bytes = patterns.texts[index].as_bytes();
                let (byte, whole) = (bytes[depth], depth + 1 == bytes.len());
                let child = patterns.child(ends[index], byte);
                let child = child.unwrap_or_else(|| patterns.add(ends[index], byte));
                ends[index] = child;
                if whole {
                    let state = &mut patterns.nodes[child as usize];
                    // If strings are equal, the first one is reported.
                    state.text.get_or_insert(index as u32);
                    state.found = state.text;
                }
            }
        }
        patterns
    }

    /// Adds a child. All nodes of smaller depth exist, so its suffix exists as well.
    fn add(&mut self, parent: Node, byte: u8) -> Node {
        let child = self.nodes.len() as Node;
        let State { depth, suffix, .. } = self.nodes[parent as usize];
        let suffix = if parent == ROOT { ROOT } else { self.step(suffix, byte) };
        let found = self.nodes[suffix as usize].found;
        self.nodes.push(State { depth: depth + 1, suffix, text: None, found });
        match parent {
            ROOT => self.first[usize::from(byte)] = child,
            parent => {
                self.next.insert((parent, byte), child);
            }
        }
        child
    }

    fn child(&self, node: Node, byte: u8) -> Option<Node> {
        match node {
            ROOT => self.first.get(usize::from(byte)).copied().filter(|child| *child != ROOT),
            node => self.next.get(&(node, byte)).copied(),
        }
    }

    /// Returns the node after another byte.
    pub fn step(&self, mut node: Node, byte: u8) -> Node {
        loop {
            match self.child(node, byte) {
                Some(child) => return child,
                None if node == ROOT => return ROOT,
                None => node = self.nodes[node as usize].suffix,
            }
        }
    }

    /// Returns the longest string that ends at a node.
    pub fn found(&self, node: Node) -> Option<&str> {
        let index = self.nodes.get(node as usize)?.found?;
        self.texts.get(index as usize).map(String::as_str)
    }

    /// Returns the index of the string that equals a node's prefix.
    pub fn text(&self, node: Node) -> Option<usize> {
        self.nodes.get(node as usize)?.text.map(|index| index as usize)
    }

    /// Returns the length of the prefix of a node in bytes.
    pub fn depth(&self, node: Node) -> usize {
        self.nodes.get(node as usize).map_or(0, |state| state.depth as usize)
    }

    /// Returns a node and the nodes that are suffixes of it, longest first, without [`ROOT`].
    pub fn suffixes(&self, node: Node) -> impl Iterator<Item = Node> {
        let longer = move |node: &Node| self.nodes.get(*node as usize).map(|state| state.suffix);
        std::iter::successors(Some(node), longer).take_while(|node| *node != ROOT)
    }

    /// Returns the strings.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }
}
