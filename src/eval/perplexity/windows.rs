//! Splits a text into windows and selects the scored tokens of each.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Error;

/// A way to split a text into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Windows {
    /// llama-perplexity's default: adjacent windows. The second half of each is scored, except for
    /// its first token.
    Halves {
        /// The number of tokens of a window.
        window: usize,
    },
    /// llama-perplexity's windows with a stride: a window starts every `stride` tokens, and the
    /// last `stride` tokens of each are scored.
    Strided {
        /// The number of tokens of a window.
        window: usize,
        /// The number of tokens from the start of a window to the start of the next.
        stride: usize,
    },
    /// The sliding window of the literature (Press et al., "Train Short, Test Long", section 2):
    /// all tokens of the first window but the first are scored. Then the last `stride` tokens of
    /// each window are scored, up to the end of the text. So each token is scored once, after as
    /// many tokens as the window holds.
    Sliding {
        /// The number of tokens of a window; the last one may have fewer.
        window: usize,
        /// The number of tokens from the start of a window to the start of the next.
        stride: usize,
    },
}

/// A part of a text that the model reads into an empty cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The range of tokens in the text.
    pub tokens: Range<usize>,
    /// The range of scored tokens, counted from the start of the window.
    pub scored: Range<usize>,
    /// Whether the BOS token replaces the first token, if the vocabulary adds one.
    pub bos: bool,
}

impl Windows {
    /// Returns the windows of a text of `tokens` tokens.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is too short, a window has no token to score, or the stride
    /// would leave tokens out.
    pub fn split(self, tokens: usize) -> Result<Vec<Window>, Error> {
        let window = self.window();
        let least = if matches!(self, Windows::Halves { .. }) { 3 } else { 2 };
        if window < least {
            return Err(Error::Window { window, least });
        }
        let most = match self {
            Windows::Halves { .. } => usize::MAX,
            // The first token of a window has no token before it.
            Windows::Strided { .. } => window - 1,
            Windows::Sliding { .. } => window,
        };
        if let Windows::Strided { stride, .. } | Windows::Sliding { stride, .. } = self
            && !(1..=most).contains(&stride)
        {
            return Err(Error::Stride { stride, window, most });
        }
        let needed = match self {
            Windows::Sliding { .. } => window,
            Windows::Halves { .. } | Windows::Strided { .. } => window.saturating_mul(2),
        };
        if tokens < needed {
            return Err(Error::ShortText { tokens, window, needed });
        }
        Ok(match self {
            Windows::Halves { .. } => halves(tokens, window).collect(),
            Windows::Strided { stride, .. } => (0..tokens - window)
                .step_by(stride)
                .map(|start| Window {
                    tokens: start..start + window,
                    scored: window - stride..window,
                    // llama-perplexity inserts BOS only after the window has been read, to no
                    // effect.
                    bos: false,
                })
                .collect(),
            Windows::Sliding { stride, .. } => sliding(tokens, window, stride),
        })
    }

    /// The number of tokens of a window.
    pub fn window(self) -> usize {
        match self {
            Windows::Halves { window }
            | Windows::Strided { window, .. }
            | Windows::Sliding { window, .. } => window,
        }
    }
}

/// Returns all whole windows, with the second half of each scored.
pub fn halves(tokens: usize, window: usize) -> impl Iterator<Item = Window> {
    (0..tokens / window).map(move |i| Window {
        tokens: i * window..(i + 1) * window,
        scored: window / 2 + 1..window,
        bos: true,
    })
}

fn sliding(tokens: usize, window: usize, stride: usize) -> Vec<Window> {
    let mut windows = Vec::new();
    let (mut start, mut done) = (0, 1);
    while done < tokens {
        let end = (start + window).min(tokens);
        // With a stride of a whole window, the first token of each window has no token before it.
        let scored = (done - start).max(1)..end - start;
        windows.push(Window { tokens: start..end, scored, bos: true });
        done = end;
        start += stride;
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(tokens: Range<usize>, scored: Range<usize>, bos: bool) -> Window {
        Window { tokens, scored, bos }
    }

    #[test]
    fn halves_are_scored_as_llama_perplexity_does() {
        // Of 512: the logits of positions 256 to 510, for the tokens from 257 to 511.
        let windows = Windows::Halves { window: 512 }.split(1030).unwrap();
        assert_eq!(windows, [window(0..512, 257..512, true), window(512..1024, 257..512, true)]);
        let odd = Windows::Halves { window: 5 }.split(10).unwrap();
        assert_eq!(odd, [window(0..5, 3..5, true), window(5..10, 3..5, true)]);
    }

    #[test]
    fn strides_are_those_of_llama_perplexity() {
        // ceil((25 - 10) / 4) windows, which do not reach the last token.
        let windows = Windows::Strided { window: 10, stride: 4 }.split(25).unwrap();
        let expected = [0, 4, 8, 12].map(|start| window(start..start + 10, 6..10, false));
        assert_eq!(windows, expected);
    }

    #[test]
    fn a_sliding_window_scores_each_token_once() {
        let windows = Windows::Sliding { window: 10, stride: 4 }.split(20).unwrap();
        assert_eq!(
            windows,
            [
                window(0..10, 1..10, true),
                window(4..14, 6..10, true),
                window(8..18, 6..10, true),
                window(12..20, 6..8, true),
            ]
        );
        for tokens in 7..40 {
            for stride in 1..7 {
                let windows = Windows::Sliding { window: 7, stride }.split(tokens).unwrap();
                let scored = |w: &Window| w.tokens.start + w.scored.start..w.tokens.end;
                let found: Vec<_> = windows.iter().flat_map(scored).collect();
                assert_eq!(found, (1..tokens).collect::<Vec<_>>(), "{tokens} {stride}");
            }
        }
        let side_by_side = Windows::Sliding { window: 5, stride: 5 }.split(11).unwrap();
        assert_eq!(side_by_side[1], window(5..10, 1..5, true));
    }

    #[test]
    fn texts_that_cannot_be_split_are_errors() {
        let short = Windows::Halves { window: 8 }.split(15).unwrap_err().to_string();
        assert!(short.contains("15") && short.contains("16"), "{short}");
        assert!(Windows::Halves { window: 8 }.split(16).is_ok());
        assert!(Windows::Sliding { window: 8, stride: 1 }.split(7).is_err());
        assert!(Windows::Sliding { window: 8, stride: 8 }.split(8).is_ok());
        for (windows, tokens) in [
            (Windows::Halves { window: 2 }, 100),
            (Windows::Sliding { window: 1, stride: 1 }, 100),
            (Windows::Sliding { window: 8, stride: 0 }, 100),
            (Windows::Sliding { window: 8, stride: 9 }, 100),
            (Windows::Strided { window: 8, stride: 8 }, 100),
            (Windows::Strided { window: 8, stride: 0 }, 100),
            (Windows::Halves { window: usize::MAX }, 100),
        ] {
            assert!(windows.split(tokens).is_err(), "{windows:?}");
        }
    }
}
