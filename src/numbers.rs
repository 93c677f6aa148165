//! Parsers of whole numbers such as `4096` and `4k`.

use std::{num::IntErrorKind, time::Duration};

/// The largest number of tokens: above the context of any model, and small enough that sizes do not
/// overflow.
const TOKENS_MAX: i64 = 1 << 30;

/// Parses a whole number, which may end in k for times 1,024 or m for times 1,048,576.
///
/// A number that is too large for the type becomes the type's limit, which the caller's range
/// rejects.
///
/// # Errors
/// If `text` is not such a number.
pub fn whole(text: &str) -> Result<i64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let number = digits.parse::<i64>().or_else(|e| match e.kind() {
        IntErrorKind::PosOverflow => Ok(i64::MAX),
        IntErrorKind::NegOverflow => Ok(i64::MIN),
        _ => Err("not a whole number, such as 4096 or 4k (4 x 1024)"),
    })?;
    Ok(number.saturating_mul(unit))
}

/// Parses a number of tokens.
///
/// # Errors
/// If `text` is not a number, or out of range.
pub fn up_to_limit(text: &str) -> Result<usize, String> {
    match whole(text)? {
        tokens if tokens > TOKENS_MAX => Err(format!("must be at most {TOKENS_MAX}")),
        tokens => usize::try_from(tokens).map_err(|_| "must be at least 0".into()),
    }
}

/// The size of a context that fits the prompt. Only [`context_or_auto`] returns it.
pub const AUTO: usize = usize::MAX;

/// Parses the size of a context.
///
/// # Errors
/// If `text` is not a number, or out of range.
pub fn context(text: &str) -> Result<usize, String> {
    match text {
        "auto" => {
            Err("auto fits the context to the prompt of `rope-cpu run`: give a number here".into())
        }
        text => up_to_limit(text),
    }
}

/// Parses the size of a context, or `auto` as [`AUTO`].
///
/// # Errors
/// If `text` is neither, or out of range.
pub fn context_or_auto(text: &str) -> Result<usize, String> {
    match text {
        "auto" => Ok(AUTO),
        text => up_to_limit(text).map_err(|reason| match whole(text) {
            Ok(_) => reason,
            Err(_) => reason + ", or auto",
        }),
    }
}

/// Parses a number of tokens, or another size, that is at least 1.
///
/// # Errors
/// If `text` is not a number, or out of range.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match up_to_limit(text) {
        Ok(0) => Err("must be at least 1".into()),
        other => other,
    }
}

/// Parses a number of minutes above 0.
///
/// # Errors
/// If `text` is no such number, or more than a year.
pub fn minutes(text: &str) -> Result<f64, String> {
    const YEAR: f64 = 366.0 * 24.0 * 60.0;
    let minutes = text.parse().ok().filter(|minutes| *minutes > 0.0 && *minutes <= YEAR);
    minutes.ok_or_else(|| format!("must be a number of minutes above 0, at most {YEAR}"))
}

/// Parses how embeddings are scaled: 2 for unit length, or -1 for none.
///
/// # Errors
/// If `text` is another number.
pub fn normalization(text: &str) -> Result<i64, String> {
    match text {
        "2" => Ok(2),
        "-1" => Ok(-1),
        _ => Err("choose 2 for unit length, or -1 for none".into()),
    }
}

/// Returns a parser of whole numbers of at least `least`, for clap.
pub fn from(least: i64) -> impl Fn(&str) -> Result<i64, String> + Clone {
    move |text| match whole(text)? {
        number if number >= least => Ok(number),
        _ => Err(format!("must be at least {least}")),
    }
}

/// Returns a parser of whole numbers from `least` to `most`, for clap.
pub fn between<T: TryFrom<i64>>(
    least: i64,
    most: i64,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("must be a whole number from {least} to {most}"))
    }
}

/// A maximum number of tokens; `None` for no limit.
pub type Limit = Option<usize>;

/// Parses a limit; -1 is none.
///
/// # Errors
/// If `text` is not a number, or out of range.
pub fn limit(text: &str) -> Result<Limit, String> {
    Ok(usize::try_from(from(-1)(text)?).ok())
}

/// Returns a parser of seconds from `least` to `most`, for clap.
pub fn seconds(least: i64, most: i64) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| between(least, most)(text).map(Duration::from_secs)
}

/// Returns a parser of MiB from `least` to `most` as bytes, for clap.
pub fn mebibytes(least: i64, most: i64) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| Ok(between::<usize>(least, most)(text)? << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_and_m_are_powers_of_1024() {
        for (text, number) in [
            ("0", 0),
            ("4096", 4096),
            ("32k", 32_768),
            ("32K", 32_768),
            ("1m", 1_048_576),
            ("2M", 2_097_152),
            ("-1", -1),
            ("99999999999999999999", i64::MAX),
            ("9999999999999999m", i64::MAX),
            ("-99999999999999999999", i64::MIN),
        ] {
            assert_eq!(whole(text), Ok(number), "{text}");
        }
    }

    #[test]
    fn an_invalid_number_is_reported_with_the_expected_form() {
        for text in ["", "k", "many", "1.5k", "4kk", "4km", "4 k", "0x10", "4g", "-", "1e3"] {
            assert!(whole(text).unwrap_err().contains("such as 4096 or 4k"), "{text}");
        }
    }

    #[test]
    fn a_number_out_of_range_is_reported_with_its_limit() {
        assert_eq!(up_to_limit("1024m"), Ok(1 << 30));
        assert!(up_to_limit("1025m").unwrap_err().contains("at most 1073741824"));
        assert!(up_to_limit("-5").unwrap_err().contains("at least 0"));
        assert!(at_least_one("0k").unwrap_err().contains("at least 1"));
        assert_eq!((from(-2)("-2"), from(-2)("1k")), (Ok(-2), Ok(1024)));
        assert_eq!(between(0, 2)("2"), Ok(2_u32));
        for text in ["3", "-1", "x", "1k"] {
            assert_eq!(
                between::<u32>(0, 2)(text).unwrap_err(),
                "must be a whole number from 0 to 2"
            );
        }
        assert!(from(-2)("-3").unwrap_err().contains("at least -2"));
        assert!(limit("-2").unwrap_err().contains("at least -1"));
        let expected = Err("must be a whole number from 1 to 2".to_string());
        assert_eq!(
            (seconds(1, 2)("3").map(drop), mebibytes(1, 2)("0").map(drop)),
            (expected.clone(), expected)
        );
    }

    #[test]
    fn options_of_the_server_are_in_the_units_of_handlers() {
        assert_eq!([limit("-1"), limit("0"), limit("4k")], [Ok(None), Ok(Some(0)), Ok(Some(4096))]);
        assert_eq!(seconds(1, 600)("600"), Ok(Duration::from_mins(10)));
        assert_eq!(mebibytes(1, 4096)("4096"), Ok(1 << 32));
    }
}
