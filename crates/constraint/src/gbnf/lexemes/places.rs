//! Finds which lexemes of a grammar may start a text, and which may follow each other.

use std::collections::HashSet;

use super::{Lexemes, Part, languages::Languages};
use crate::gbnf::rules::{Node, NodeId};

/// Maximum lexemes, places, and pairs of lexemes to examine.
const LEXEMES_MAX: usize = 1000;
const PLACES_MAX: usize = 5000;
const PAIRS_MAX: usize = 1_000_000;

/// A lexeme at its place in the grammar.
#[derive(Clone, Copy, Debug)]
pub enum Lexeme<'r> {
    /// Nodes, and the node that contains them or is them.
    Nodes(&'r [NodeId], NodeId),
    /// Any token.
    Token,
}

/// A set of lexemes.
type Set = Vec<u64>;

/// Adds `others` to a set. Returns whether the set has changed.
fn add(set: &mut Set, others: &Set) -> bool {
    let mut changed = false;
    for (set, others) in set.iter_mut().zip(others) {
        changed |= *others & !*set != 0;
        *set |= others;
    }
    changed
}

fn members(set: &Set) -> impl Iterator<Item = usize> {
    let bits = |(i, word): (usize, &u64)| {
        let word = *word;
        (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| i * 64 + bit)
    };
    set.iter().enumerate().flat_map(bits)
}

/// A part of the grammar that contains lexemes.
enum Place {
    Lexeme(usize),
    Sequence(Vec<usize>),
    Choice(Vec<usize>),
    Repeat { part: usize, optional: bool, again: bool },
}

/// The grammar, with its lexemes as leaves.
pub struct Places<'l, 'r> {
    division: &'l Lexemes<'r>,
    lexemes: Vec<Lexeme<'r>>,
    places: Vec<Place>,
    /// The place of each added node that is not a lexeme.
    place_of: Vec<Option<usize>>,
    root: usize,
}

impl<'l, 'r> Places<'l, 'r> {
    /// Finds the places of all lexemes reachable from the root.
    pub fn new(division: &'l Lexemes<'r>) -> Self {
        let place_of = vec![None; division.rules.nodes.len()];
        let (lexemes, places) = (Vec::new(), Vec::new());
        let mut all = Places { division, lexemes, places, place_of, root: 0 };
        let root = &division.rules.bodies[division.rules.root];
        all.root = all.add(root);
        all
    }

    /// Adds a node with all its parts, and returns its place.
    fn add(&mut self, node: &'r NodeId) -> usize {
        let (id, rules) = (*node, self.division.rules);
        if self.division.regular[id] {
            return self.add_lexeme(Lexeme::Nodes(std::slice::from_ref(node), id));
        }
        if let Some(place) = self.place_of[id] {
            return place;
        }
        let place = self.push(Place::Sequence(Vec::new()));
        self.place_of[id] = Some(place);
        self.places[place] = match &rules.nodes[id] {
            // A class is regular.
            Node::Class(_) | Node::Token(_) => Place::Choice(vec![self.add_lexeme(Lexeme::Token)]),
            Node::Sequence(items) => {
                let mut first = 0;
                let parts = self.division.parts(id).into_iter().map(|part| match part {
                    Part::Lexeme(nodes) => {
                        first += nodes.len();
                        self.add_lexeme(Lexeme::Nodes(nodes, id))
                    }
                    Part::Node(_) => {
                        first += 1;
                        self.add(&items[first - 1])
                    }
                });
                Place::Sequence(parts.collect())
            }
            Node::Choice(options) => {
                Place::Choice(options.iter().map(|option| self.add(option)).collect())
            }
            Node::Repeat(part, least, most) => Place::Repeat {
                part: self.add(part),
                optional: *least == 0,
                again: most.is_none_or(|most| most > 1),
            },
            Node::Rule(rule) => Place::Choice(vec![self.add(&rules.bodies[*rule])]),
        };
        place
    }

    fn add_lexeme(&mut self, lexeme: Lexeme<'r>) -> usize {
        self.lexemes.push(lexeme);
        self.push(Place::Lexeme(self.lexemes.len() - 1))
    }

    fn push(&mut self, place: Place) -> usize {
        self.places.push(place);
        self.places.len() - 1
    }

    /// Returns the nodes to split; `None` if the grammar is too large.
    pub fn conflicts(&self) -> Option<HashSet<NodeId>> {
        let mut conflicts = HashSet::new();
        if matches!(self.places[self.root], Place::Lexeme(_)) {
            // Nothing follows or competes.
            return Some(conflicts);
        }
        if self.lexemes.len() > LEXEMES_MAX || self.places.len() > PLACES_MAX {
            return None;
        }
        let mut languages = Languages::new(self.division.rules, &self.lexemes)?;
        let (first, follow) = self.first_and_follow(&languages.empty);
        let following = |lexeme: usize| {
            let sets = members(&follow[lexeme]).map(|next| languages.first_bytes[next]);
            sets.fold([0; 8], |a, b| std::array::from_fn(|i| a[i] | b[i]))
        };
        let following: Vec<_> = (0..self.lexemes.len()).map(following).collect();

        let mut seen = HashSet::new();
        let mut pairs = Vec::new();
        let mut looked_at = 0;
        let mut together = |a: &Set, b: &Set, pairs: &mut Vec<(usize, usize)>| {
            for a in members(a) {
                for b in members(b) {
                    let pair = (a.min(b), a.max(b));
                    if seen.insert(pair) {
                        pairs.push(pair);
                    }
                    looked_at += 1;
                }
            }
            looked_at <= PAIRS_MAX
        };
        if !together(&first, &first, &mut pairs) {
            return None;
        }
        while let Some((a, b)) = pairs.pop() {
            if !languages.begin_alike(a, b) {
                continue;
            }
            for (ended, continued) in [(a, b), (b, a)] {
                if languages.continues(ended, &following[ended], continued) {
                    conflicts.insert(self.division.node_to_split(self.lexemes[continued])?);
                }
            }
            let in_limits =
                !languages.overlap(a, b) || together(&follow[a], &follow[b], &mut pairs);
            if !in_limits || languages.is_costly() {
                return None;
            }
        }
        Some(conflicts)
    }

    /// Returns the lexemes that may start a text, and the lexemes that may follow each lexeme.
    fn first_and_follow(&self, empty: &[bool]) -> (Set, Vec<Set>) {
        let none: Set = vec![0; self.lexemes.len().div_ceil(64)];
        let mut optional = vec![false; self.places.len()];
        let mut first = vec![none.clone(); self.places.len()];
        let mut changed = true;
        while changed {
            changed = false;
            // The parts of a place come after it.
            for (id, place) in self.places.iter().enumerate().rev() {
                let mut set = first[id].clone();
                let may_be_empty = match place {
                    Place::Lexeme(lexeme) => {
                        set[lexeme / 64] |= 1 << (lexeme % 64);
                        empty[*lexeme]
                    }
                    Place::Sequence(parts) => parts.iter().all(|part| {
                        add(&mut set, &first[*part]);
                        optional[*part]
                    }),
                    Place::Choice(parts) => parts.iter().fold(false, |any, part| {
                        add(&mut set, &first[*part]);
                        any || optional[*part]
                    }),
                    Place::Repeat { part, optional: none, .. } => {
                        add(&mut set, &first[*part]);
                        *none || optional[*part]
                    }
                };
                changed |= add(&mut first[id], &set) | (may_be_empty && !optional[id]);
                optional[id] |= may_be_empty;
            }
        }

        let mut follow = vec![none.clone(); self.places.len()];
        changed = true;
        while changed {
            changed = false;
            for (id, place) in self.places.iter().enumerate() {
                let mut next = follow[id].clone();
                match place {
                    Place::Lexeme(_) => {}
                    Place::Sequence(parts) => {
                        for part in parts.iter().rev() {
                            changed |= add(&mut follow[*part], &next);
                            if !optional[*part] {
                                next.fill(0);
                            }
                            add(&mut next, &first[*part]);
                        }
                    }
                    Place::Choice(parts) => {
                        parts.iter().for_each(|part| changed |= add(&mut follow[*part], &next));
                    }
                    Place::Repeat { part, again, .. } => {
                        if *again {
                            add(&mut next, &first[*part]);
                        }
                        changed |= add(&mut follow[*part], &next);
                    }
                }
            }
        }
        let mut of_lexemes = vec![none; self.lexemes.len()];
        for (id, place) in self.places.iter().enumerate() {
            if let Place::Lexeme(lexeme) = place {
                add(&mut of_lexemes[*lexeme], &follow[id]);
            }
        }
        (first.swap_remove(self.root), of_lexemes)
    }
}
