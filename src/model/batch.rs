//! What one forward pass computes: rows of tokens, cut into tiles that attend together.

use rope_cpu_kernels::Regime;

use crate::Token;

/// What tokens are read for. It decides the order of all sums, so that a token's logits are the same
/// bits whatever else is in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Text that is there already: read many tokens at a time.
    Prompt,
    /// What was just chosen: read a token at a time, or a few.
    Answer,
}

impl Role {
    /// The regime of products with weights.
    pub fn regime(self) -> Regime {
        match self {
            Role::Prompt => Regime::Many,
            Role::Answer => Regime::Few,
        }
    }
}

/// A token at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The token.
    pub token: Token,
    /// Its position in the sequence.
    pub position: usize,
    /// Which sequence of the cache.
    pub sequence: usize,
}

/// Neighbouring rows of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The first row.
    pub first: usize,
    /// How many.
    pub rows: usize,
}

/// Cuts rows into tiles of at most `most`, so that each holds neighbouring positions of one
/// sequence.
pub fn tiles(rows: &[Row], most: usize, tiles: &mut Vec<Tile>) {
    tiles.clear();
    for (i, row) in rows.iter().enumerate() {
        let next = tiles.last_mut().filter(|tile| {
            let last = rows[i - 1];
            tile.rows < most && last.sequence == row.sequence && last.position + 1 == row.position
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
