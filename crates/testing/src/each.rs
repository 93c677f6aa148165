//! One test for each case, so that a failure names it and threads share the work.

/// Defines a test for each case, in a module with the name of `check`. A case `name(arguments)`
/// calls `check("name", arguments)`.
#[macro_export]
macro_rules! on_each_case {
    ($check:ident { $($case:ident($($argument:expr),* $(,)?)),+ $(,)? }) => {
        mod $check {
            use super::*;
            $(
                #[test]
                fn $case() {
                    super::$check(stringify!($case), $($argument),*);
                }
            )+
        }
    };
}

/// Defines a test for each of some families from `check: fn(&str, Tiny)`, in a module with the name
/// of `check`. In the names of tests, `-` is `_`.
#[macro_export]
macro_rules! on_families {
    (@names: $($family:ident)+) => { [$(stringify!($family)),+] };
    ($check:ident: $($family:ident)+) => {
        mod $check {
            $(
                #[test]
                fn $family() {
                    let (name, tiny) = $crate::tiny::Tiny::of_test(stringify!($family));
                    super::$check(name, tiny);
                }
            )+
        }
    };
}
