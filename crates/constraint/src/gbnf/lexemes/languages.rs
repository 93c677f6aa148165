//! The language of each lexeme: the texts that it matches.

use llguidance::{
    derivre::{
        ExprRef, RegexAst, RegexBuilder,
        raw::{ExprSet, RelevanceCache},
    },
    toktrie::TokTrie,
};

use super::places::Lexeme;
use crate::gbnf::rules::{Node, NodeId, Rules};

/// Maximum cost of examining one pair of lexemes. Above it, they are assumed to share a text.
const FUEL: u64 = 20_000;

/// Maximum cost of examining all pairs: about a tenth of a second.
const COST_MAX: u64 = 5_000_000;

/// A set of bytes.
pub type Bytes = [u32; 8];

/// The texts of each lexeme, except the empty text.
pub struct Languages {
    expressions: ExprSet,
    cache: RelevanceCache,
    lexemes: Vec<ExprRef>,
    /// Whether each lexeme may be empty.
    pub empty: Vec<bool>,
    /// The first bytes of each lexeme.
    pub first_bytes: Vec<Bytes>,
}

impl Languages {
    /// Returns `None` if the lexemes are too complex.
    pub fn new(rules: &Rules, of: &[Lexeme<'_>]) -> Option<Self> {
        let mut builder =
            Builder { rules, regexes: RegexBuilder::new(), nodes: vec![None; rules.nodes.len()] };
        let mut lexemes = Vec::new();
        let mut first_bytes = Vec::new();
        for lexeme in of {
            let (expression, bytes) = match lexeme {
                Lexeme::Token => {
                    let mark = TokTrie::SPECIAL_TOKEN_MARKER;
                    let mut bytes = [0; 8];
                    bytes[usize::from(mark / 32)] |= 1 << (mark % 32);
                    (builder.regexes.mk(&RegexAst::Byte(mark)).ok()?, bytes)
                }
                Lexeme::Nodes(nodes, _) => builder.sequence(nodes)?,
            };
            lexemes.push(expression);
            first_bytes.push(bytes);
        }
        let empty = lexemes.iter().map(|lexeme| builder.regexes.is_nullable(*lexeme)).collect();
        let mut expressions = builder.regexes.into_exprset();
        // An empty text is not a lexeme.
        let any = ExprRef::NON_EMPTY_BYTE_STRING;
        let lexemes =
            lexemes.into_iter().map(|lexeme| expressions.mk_and(&mut vec![lexeme, any])).collect();
        Some(Languages { expressions, cache: RelevanceCache::new(), lexemes, empty, first_bytes })
    }

    /// Returns whether the search should give up.
    pub fn is_costly(&self) -> bool {
        self.expressions.cost() > COST_MAX
    }

    /// Returns whether two lexemes can start with the same byte.
    pub fn begin_alike(&self, a: usize, b: usize) -> bool {
        self.first_bytes[a].iter().zip(self.first_bytes[b]).any(|(a, b)| a & b != 0)
    }

    /// Returns whether some text matches both lexemes.
    pub fn overlap(&mut self, a: usize, b: usize) -> bool {
        a == b || self.exists(self.lexemes[a], self.lexemes[b])
    }

    /// Returns whether `continued` can start with all of `ended` and a byte of `following`.
    pub fn continues(&mut self, ended: usize, following: &Bytes, continued: usize) -> bool {
        if *following == [0; 8] {
            return false;
        }
        let next = self.expressions.mk_byte_set(following);
        let beginning = [self.lexemes[ended], next, ExprRef::ANY_BYTE_STRING];
        let beginning = self.expressions.mk_concat_vec(&beginning);
        self.exists(beginning, self.lexemes[continued])
    }

    /// Returns whether some text matches both expressions, or may match them.
    fn exists(&mut self, a: ExprRef, b: ExprRef) -> bool {
        let both = self.expressions.mk_and(&mut vec![a, b]);
        let limited = self.cache.is_non_empty_limited(&mut self.expressions, both, FUEL);
        limited.unwrap_or(true)
    }
}

/// Builds expressions of nodes, with their first bytes.
struct Builder<'r> {
    rules: &'r Rules,
    regexes: RegexBuilder,
    nodes: Vec<Option<(ExprRef, Bytes)>>,
}

impl Builder<'_> {
    fn sequence(&mut self, nodes: &[NodeId]) -> Option<(ExprRef, Bytes)> {
        let parts: Vec<_> = nodes.iter().map(|node| self.node(*node)).collect::<Option<_>>()?;
        let mut bytes = [0; 8];
        for (expression, first) in &parts {
            bytes = std::array::from_fn(|i| bytes[i] | first[i]);
            if !self.regexes.is_nullable(*expression) {
                break;
            }
        }
        let parts = parts.into_iter().map(|(expression, _)| RegexAst::ExprRef(expression));
        Some((self.regexes.mk(&RegexAst::Concat(parts.collect())).ok()?, bytes))
    }

    fn node(&mut self, node: NodeId) -> Option<(ExprRef, Bytes)> {
        if let Some(made) = self.nodes[node] {
            return Some(made);
        }
        let made = match &self.rules.nodes[node] {
            Node::Token(_) => return None,
            Node::Class(class) => {
                let mut regex = String::new();
                class.write_regex(&mut regex);
                let mut bytes = [0; 8];
                for &(first, last) in class.ranges() {
                    let byte = |c: char| c.encode_utf8(&mut [0; 4]).as_bytes()[0];
                    for byte in byte(first)..=byte(last) {
                        bytes[usize::from(byte / 32)] |= 1 << (byte % 32);
                    }
                }
                (self.regexes.mk_regex(&regex).ok()?, bytes)
            }
            Node::Sequence(nodes) => self.sequence(nodes)?,
            Node::Choice(nodes) => {
                let parts: Vec<_> =
                    nodes.iter().map(|node| self.node(*node)).collect::<Option<_>>()?;
                let bytes = parts
                    .iter()
                    .fold([0; 8], |all, (_, first)| std::array::from_fn(|i| all[i] | first[i]));
                let parts = parts.into_iter().map(|(expression, _)| RegexAst::ExprRef(expression));
                (self.regexes.mk(&RegexAst::Or(parts.collect())).ok()?, bytes)
            }
            Node::Repeat(part, least, most) => {
                let (part, bytes) = self.node(*part)?;
                let part = Box::new(RegexAst::ExprRef(part));
                let most = most.unwrap_or(u32::MAX);
                (self.regexes.mk(&RegexAst::Repeat(part, *least, most)).ok()?, bytes)
            }
            Node::Rule(rule) => self.node(self.rules.bodies[*rule])?,
        };
        self.nodes[node] = Some(made);
        Some(made)
    }
}
