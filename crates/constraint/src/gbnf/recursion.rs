//! Replaces rules that end with themselves, such as `ws ::= ([ \t\n] ws)?`, by repetitions.
//!
//! Such rules are common in grammars from before llama.cpp had `*`. A repetition takes the same
//! time for each character. Recursion takes longer with each one.

use super::rules::{Node, NodeId, Rules};

/// Maximum sequences around the recursion. Each is copied once for each way that ends in it.
const DEPTH_MAX: usize = 8;

/// Replaces recursion at the end of rules by repetition.
pub fn unroll(rules: &mut Rules) {
    for rule in 0..rules.bodies.len() {
        let body = rules.bodies[rule];
        let Some(Ways { again, last }) = ways(rules, body, rule, DEPTH_MAX) else { continue };
        if again.is_empty() || last.is_empty() {
            continue;
        }
        let again = add(rules, Node::Choice(again));
        let again = add(rules, Node::Repeat(again, 0, None));
        let last = add(rules, Node::Choice(last));
        rules.bodies[rule] = add(rules, Node::Sequence(vec![again, last]));
    }
}

/// The ways through a node of a rule.
struct Ways {
    /// The nodes before another repetition of the rule.
    again: Vec<NodeId>,
    /// The nodes that do not contain the rule.
    last: Vec<NodeId>,
}

/// Returns `None` if the rule occurs elsewhere than at the end, or within more than `depth`
/// sequences.
fn ways(rules: &mut Rules, node: NodeId, rule: usize, depth: usize) -> Option<Ways> {
    match rules.nodes[node].clone() {
        Node::Rule(itself) if itself == rule => {
            Some(Ways { again: vec![add(rules, Node::Sequence(Vec::new()))], last: Vec::new() })
        }
        Node::Choice(options) => {
            let mut all = Ways { again: Vec::new(), last: Vec::new() };
            for option in options {
                let Ways { again, last } = ways(rules, option, rule, depth)?;
                all.again.extend(again);
                all.last.extend(last);
            }
            Some(all)
        }
        Node::Sequence(items) if depth > 0 => {
            let Some((&end, before)) = items.split_last() else {
                return Some(Ways { again: Vec::new(), last: vec![node] });
            };
            if before.iter().any(|item| contains(rules, *item, rule)) {
                return None;
            }
            let Ways { again, last } = ways(rules, end, rule, depth - 1)?;
            if again.is_empty() {
                return Some(Ways { again, last: vec![node] });
            }
            let mut after = |ends: Vec<NodeId>| -> Vec<NodeId> {
                let sequence = |end| Node::Sequence([before, &[end]].concat());
                ends.into_iter().map(|end| add(rules, sequence(end))).collect()
            };
            Some(Ways { again: after(again), last: after(last) })
        }
        Node::Repeat(part, 0, Some(1)) => {
            let mut ways = ways(rules, part, rule, depth)?;
            ways.last.push(add(rules, Node::Sequence(Vec::new())));
            Some(ways)
        }
        _ if contains(rules, node, rule) => None,
        _ => Some(Ways { again: Vec::new(), last: vec![node] }),
    }
}

/// Returns whether a node refers to a rule.
fn contains(rules: &Rules, node: NodeId, rule: usize) -> bool {
    match &rules.nodes[node] {
        Node::Class(_) | Node::Token(_) => false,
        Node::Sequence(parts) | Node::Choice(parts) => {
            parts.iter().any(|part| contains(rules, *part, rule))
        }
        Node::Repeat(part, ..) => contains(rules, *part, rule),
        Node::Rule(other) => *other == rule,
    }
}

fn add(rules: &mut Rules, node: Node) -> NodeId {
    rules.nodes.push(node);
    rules.nodes.len() - 1
}
