//! The input of one forward pass: rows of tokens, cut into tiles that attend together.

use rope_cpu_kernels::Regime;

use crate::Token;

/// The role of a token in the sequence. It determines the order of all sums, so that a token's
/// logits have the same bits with any other tokens in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A token of a prompt, read many at a time.
    Prompt,
    /// A token that was just generated, read one or a few at a time.
    Answer,
}

impl Role {
    /// Returns the regime of products with weights.
    pub fn regime(self) -> Regime {
        match self {
            Role::Prompt => Regime::Many,
            Role::Answer => Regime::Few,
        }
    }
}

/// A token at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The token.
    pub token: Token,
    /// The position in the sequence.
    pub position: usize,
    /// The index of the sequence in the KV cache.
    pub sequence: usize,
}

/// Consecutive rows with consecutive positions of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The index of the first row.
    pub first: usize,
    /// The number of rows.
    pub rows: usize,
}

/// Cuts rows into tiles of at most `max` rows, each of consecutive positions of one sequence.
pub fn tiles(rows: &[Row], max: usize, tiles: &mut Vec<Tile>) {
    tiles.clear();
    for (i, row) in rows.iter().enumerate() {
        let next = tiles.last_mut().filter(|tile| {
            let last = rows[i - 1];
            tile.rows < max && last.sequence == row.sequence && last.position + 1 == row.position
        });
        match next {
            Some(tile) => tile.rows += 1,
            None => tiles.push(Tile { first: i, rows: 1 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_end_where_the_sequence_or_the_run_of_positions_does() {
        let at = |(position, sequence)| Row { token: 0, position, sequence };
        let rows = [(5, 0), (6, 0), (7, 0), (8, 0), (8, 1), (9, 1), (11, 1)].map(at);
        let mut found = Vec::new();
        tiles(&rows, 3, &mut found);
        let sizes: Vec<_> = found.iter().map(|t| (t.first, t.rows)).collect();
        assert_eq!(sizes, [(0, 3), (3, 1), (4, 2), (6, 1)]);
    }
}
