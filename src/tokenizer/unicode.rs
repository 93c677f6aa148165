//! The classes of characters that words are cut by.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// What a pattern of a pre-tokenizer can ask of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// `\p{L}`
    Letter,
    /// `\p{N}`
    Number,
    /// `\p{M}`
    Mark,
    /// `\s`: the property `White_Space`.
    Space,
    /// None of these.
    Other,
}

impl Class {
    pub fn of(character: char) -> Self {
        match character {
            'a'..='z' | 'A'..='Z' => Self::Letter,
            '0'..='9' => Self::Number,
            ' ' | '\t'..='\r' => Self::Space,
            '\0'..='\x7f' => Self::Other,
            _ if character.is_whitespace() => Self::Space,
            _ => match character.general_category_group() {
                GeneralCategoryGroup::Letter => Self::Letter,
                GeneralCategoryGroup::Number => Self::Number,
                GeneralCategoryGroup::Mark => Self::Mark,
                _ => Self::Other,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_those_of_unicode_15_1_as_in_llama_cpp() {
        assert_eq!(unicode_properties::UNICODE_VERSION, (15, 1, 0));
        // Ideographs new in 15.1, and digits new in 16.0.
        assert_eq!(Class::of('\u{2ebf0}'), Class::Letter);
        assert_eq!(Class::of('\u{10d40}'), Class::Other);
    }

    #[test]
    fn the_short_way_for_ascii_agrees_with_the_tables() {
        for c in '\0'..='\x7f' {
            let expected = match c.general_category_group() {
                _ if c.is_whitespace() => Class::Space,
                GeneralCategoryGroup::Letter => Class::Letter,
                GeneralCategoryGroup::Number => Class::Number,
                _ => Class::Other,
            };
            assert_eq!(Class::of(c), expected, "{c:?}");
        }
    }
}
