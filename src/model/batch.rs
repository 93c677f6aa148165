//! The input of one forward pass: rows of tokens, sorted by role, and the tiles of rows that attend
//! together.

use std::ops::Range;

use rope_cpu_kernels::Regime;

use crate::Token;

/// The role of a token in the sequence. It determines the order of all sums, so that a token's
/// logits have the same bits with any other tokens in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A token that was just generated, computed one or a few at a time.
    Answer,
    /// A token of a prompt, computed many at a time.
    Prompt,
}

impl Role {
    /// All roles, in the order of their rows in a batch.
    pub const ALL: [Role; 2] = [Role::Answer, Role::Prompt];

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
    /// The index of the sequence in the batch.
    pub sequence: usize,
    /// The effective length for the row's RoPE frequencies.
    pub effective_length: usize,
}

impl Row {
    /// Returns whether `next` is the next token of the same sequence, with the same frequencies.
    pub fn precedes(&self, next: &Row) -> bool {
        self.sequence == next.sequence
            && self.position + 1 == next.position
            && self.effective_length == next.effective_length
    }
}

/// The rows of one feed in a batch.
pub struct Part {
    /// The index of the feed.
    pub feed: usize,
    /// The index in the sequence of the first row's token.
    pub first_token: usize,
    /// Whether the tokens were computed before, with other frequencies.
    pub recomputing: bool,
    /// The indices of the rows.
    pub rows: Range<usize>,
}

/// The numbers of rows of each role. Answers come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleRows {
    pub answers: usize,
    pub prompts: usize,
}

impl RoleRows {
    /// Returns the number of all rows.
    pub fn total(self) -> usize {
        self.answers + self.prompts
    }

    /// Returns the indices of the rows of a role.
    pub fn range(self, role: Role) -> Range<usize> {
        match role {
            Role::Answer => 0..self.answers,
            Role::Prompt => self.answers..self.total(),
        }
    }

    /// Returns the role of a row, and its index among the rows of that role.
    pub fn place(self, row: usize) -> (Role, usize) {
        match row.checked_sub(self.answers) {
            None => (Role::Answer, row),
            Some(row) => (Role::Prompt, row),
        }
    }

    /// Returns the indices of the rows of each role that has any, in their order.
    pub fn ranges(self) -> impl Iterator<Item = (Role, Range<usize>)> {
        let ranges = Role::ALL.into_iter().map(move |role| (role, self.range(role)));
        ranges.filter(|(_, rows)| !rows.is_empty())
    }
}

/// The rows of one step: answers, then prompts.
#[derive(Default)]
pub struct Batch {
    pub rows: Vec<Row>,
    pub roles: RoleRows,
    pub parts: Vec<Part>,
    /// Whether rows store no keys, so that they attend to earlier tokens only.
    pub without_keys: bool,
}

impl Batch {
    /// Removes all rows.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.roles = RoleRows::default();
        self.parts.clear();
        self.without_keys = false;
    }

    /// Returns a batch of these rows, in ascending order, without parts.
    pub fn only(&self, rows: &[usize]) -> Self {
        let answers = rows.partition_point(|&row| row < self.roles.answers);
        Batch {
            rows: rows.iter().map(|&row| self.rows[row]).collect(),
            roles: RoleRows { answers, prompts: rows.len() - answers },
            ..Batch::default()
        }
    }

    /// Assigns the rows added since the last call to a role.
    pub fn end_role(&mut self, role: Role) {
        let count = self.rows.len() - self.roles.total();
        match role {
            Role::Answer => self.roles.answers = count,
            Role::Prompt => self.roles.prompts = count,
        }
    }

    /// Returns the position after the last key of the feed that a row belongs to.
    pub fn end(&self, row: usize) -> usize {
        self.part(row).map_or(0, |part| match self.without_keys {
            true => self.rows[part.rows.start].position,
            false => self.rows[part.rows.end - 1].position + 1,
        })
    }

    /// Returns the segment of a row in a text that an encoder reads: 0 up to the first `separator`, and
    /// 1 after it.
    pub fn segment(&self, row: usize, separator: Token) -> usize {
        let start = self.part(row).map_or(row, |part| part.rows.start);
        usize::from(self.rows[start..row].iter().any(|row| row.token == separator))
    }

    /// Returns the part of a row.
    pub fn part(&self, row: usize) -> Option<&Part> {
        self.parts.iter().find(|part| part.rows.contains(&row))
    }

    /// Adds rows of a feed. Its first token has the index `first_token` in its sequence.
    pub fn push(
        &mut self,
        feed: usize,
        first_token: usize,
        recomputing: bool,
        rows: impl Iterator<Item = Row>,
    ) {
        let start = self.rows.len();
        self.rows.extend(rows);
        if self.rows.len() > start {
            self.parts.push(Part { feed, first_token, recomputing, rows: start..self.rows.len() });
        }
    }
}

/// Consecutive rows with consecutive positions of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The index of the first row.
    pub first: usize,
    /// The number of rows.
    pub rows: usize,
}

/// Cuts rows into tiles of at most `max` rows, each of consecutive positions of one sequence with
/// the same frequencies. Tiles that are `aligned` also end at positions that are multiples of `max`.
pub fn cut(rows: &[Row], max: usize, aligned: bool, tiles: &mut Vec<Tile>) {
    tiles.clear();
    for (i, row) in rows.iter().enumerate() {
        let starts = aligned && row.position.is_multiple_of(max);
        let follows = |tile: &&mut Tile| tile.rows < max && !starts && rows[i - 1].precedes(row);
        let next = tiles.last_mut().filter(follows);
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
    fn tiles_end_where_sequence_positions_or_frequencies_do() {
        let at = |(position, sequence, effective_length)| Row {
            token: 0,
            position,
            sequence,
            effective_length,
        };
        let rows = [
            (5, 0, 9),
            (6, 0, 9),
            (7, 0, 9),
            (8, 0, 9),
            (9, 1, 9),
            (10, 1, 9),
            (11, 1, 19),
            (13, 1, 19),
        ];
        let mut found = Vec::new();
        let mut sizes = |aligned| {
            cut(&rows.map(at), 3, aligned, &mut found);
            found.iter().map(|t| (t.first, t.rows)).collect::<Vec<_>>()
        };
        assert_eq!(sizes(false), [(0, 3), (3, 1), (4, 2), (6, 1), (7, 1)]);
        assert_eq!(sizes(true), [(0, 1), (1, 3), (4, 2), (6, 1), (7, 1)]);
    }
}
