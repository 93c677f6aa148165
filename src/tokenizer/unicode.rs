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
