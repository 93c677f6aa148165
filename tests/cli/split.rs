//! A model in two files.

use crate::cli::run;
use rope_cpu_testing::reader::{tiny_after_its_metadata, tiny_in_parts, tiny_reader};

#[test]
fn a_model_in_parts_writes_what_the_whole_does() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = tiny_in_parts(5, folder.path());
    let whole = tiny_reader(5, true);
    let answer = |path: &std::path::Path| {
        let path = path.to_str().unwrap();
        run(&["-m", path, "-p", "on the train", "-n", "20", "--temp", "0"])
    };
    let expected = answer(whole.path()).stdout;
    let found = answer(&first);
    assert_eq!((found.code, found.stdout), (Some(0), expected.clone()), "{}", found.stderr);

    let other = tempfile::tempdir().unwrap();
    let [metadata, _] = tiny_after_its_metadata(5, other.path());
    let found = answer(&metadata);
    assert_eq!((found.code, found.stdout), (Some(0), expected), "{}", found.stderr);

    let parts = format!("give the first part, {}", first.display());
    answer(&second).refused(2, &["is part 2 of 2 of a model", &parts]);
    std::fs::remove_file(&second).unwrap();
    answer(&first).refused(2, &[&format!("{} is missing", second.display())]);
}
