//! Formatting of times.

/// Formats a remaining time, rounded up to seconds: `12 s`, `16:30 min` or `1:30 h`.
pub fn wait(seconds: f64) -> String {
    match seconds.ceil() as u64 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        seconds => format!("{}:{:02} h", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times_are_in_seconds() {
        assert_eq!(wait(0.0), "0 s");
        assert_eq!(wait(1.2), "2 s");
        assert_eq!(wait(59.9), "1:00 min");
        assert_eq!(wait(3599.0), "59:59 min");
        assert_eq!(wait(3600.0), "1:00 h");
    }
}
