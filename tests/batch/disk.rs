//! Sequences on disk.

use std::{
    fs::File,
    path::Path,
    time::{Duration, SystemTime},
};

use rope_cpu::{
    batch::{Disk, Request, Scheduler},
    model::Model,
    rope::{ATTENTION_SINKS, Flags},
};

use crate::batch::harness::{Setup, alone, engine, finish, request, submit, tokens, with_model};

fn with_disk<'m>(model: &'m Model, folder: &Path, flags: &Flags) -> Scheduler<'m> {
    with_setup(model, folder, Setup { flags: flags.clone(), ..Setup::new(2) })
}

fn with_setup<'m>(model: &'m Model, folder: &Path, mut setup: Setup) -> Scheduler<'m> {
    let engine = engine(model, &setup);
    let archive = engine.archive(model.fingerprint());
    setup.options.disk = Some(Disk::open(folder.into(), u64::MAX, archive).unwrap());
    Scheduler::new(engine, model.tokenizer().unwrap(), setup.options, Default::default())
}

#[test]
fn a_later_scheduler_goes_on_from_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    with_model(|model| {
        let text = tokens(1, 300);
        let mut first = with_disk(model, folder.path(), &Flags::default());
        let inbox = submit(&mut first, request(text.clone(), 10));
        finish(&mut first);
        let answer = inbox.tokens();
        first.close();
        let files = folder.path().read_dir().unwrap().count();
        assert_eq!(files, 1);

        let more = [text, answer, tokens(2, 9)].concat();
        let mut second = with_disk(model, folder.path(), &Flags::default());
        let inbox = submit(&mut second, request(more.clone(), 10));
        finish(&mut second);
        let outcome = inbox.outcome().unwrap();
        // The last token of an answer is not computed.
        assert_eq!((outcome.source, outcome.timings.reused), ("disk", 309));
        assert_eq!(inbox.tokens().len(), 10);
        // The same, but without the answer: the first prompt's tokens have the same bits.
        let other = [&more[..300], &tokens(3, 9)].concat();
        let inbox = submit(&mut second, request(other.clone(), 10));
        finish(&mut second);
        assert_eq!(inbox.outcome().unwrap().timings.reused, 300);
        assert_eq!(inbox.tokens(), alone(request(other, 10)));
    });
}

/// The clock of a machine may jump. The times of files only order them.
#[test]
fn files_are_used_whatever_their_time() {
    let later = SystemTime::now() + Duration::from_secs(1 << 32);
    for used in [SystemTime::UNIX_EPOCH, later] {
        let folder = tempfile::tempdir().unwrap();
        with_model(|model| {
            let text = tokens(1, 300);
            let run = |seed| {
                let mut scheduler = with_disk(model, folder.path(), &Flags::default());
                let prompt = [&text[..], &tokens(seed, 9)].concat();
                let inbox = submit(&mut scheduler, request(prompt, 1));
                finish(&mut scheduler);
                scheduler.close();
                let outcome = inbox.outcome().unwrap();
                (outcome.source, outcome.timings.reused)
            };
            assert_eq!(run(2), ("none", 0));
            for file in folder.path().read_dir().unwrap() {
                let file = File::options().write(true).open(file.unwrap().path()).unwrap();
                file.set_modified(used).unwrap();
            }
            assert_eq!(run(3), ("disk", 300));
        });
    }
}

#[test]
fn a_file_that_cannot_fit_in_memory_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    with_model(|model| {
        let text = tokens(1, 900);
        let mut first = with_disk(model, folder.path(), &Flags::default());
        submit(&mut first, request(text.clone(), 10));
        finish(&mut first);
        let needed = first.slot(0, 0).unwrap().0.pool().used_bytes();
        first.close();

        let setup = Setup { cache_bytes: needed - 1, ..Setup::new(2) };
        let mut second = with_setup(model, folder.path(), setup);
        let mut reused = |slot, prompt: &[u32]| {
            let request = Request { slot: Some(slot), ..request(prompt.to_vec(), 1) };
            let inbox = submit(&mut second, request);
            finish(&mut second);
            inbox.outcome().unwrap().timings.reused
        };
        let kept = tokens(2, 200);
        assert_eq!(reused(0, &kept), 0);
        assert_eq!(reused(1, &[&text[..300], &tokens(3, 9)].concat()), 0);
        assert_eq!(reused(0, &[&kept[..], &tokens(4, 9)].concat()), 200);
    });
}

/// A sequence that has dropped old keys cannot return to one that it continues, so both stay.
#[test]
fn a_sequence_stays_beside_one_that_cannot_return_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let rolling = Flags::default().with(&ATTENTION_SINKS, 4);
    with_model(|model| {
        let first = tokens(1, 300);
        let run = |scheduler: &mut Scheduler<'_>, slot, prompt: &[u32]| {
            let request = Request { slot: Some(slot), ..request(prompt.to_vec(), 1) };
            let inbox = submit(scheduler, request);
            finish(scheduler);
            let outcome = inbox.outcome().unwrap();
            (outcome.timings.reused, outcome.source)
        };
        let mut scheduler = with_disk(model, folder.path(), &rolling);
        let longer = [&first[..], &tokens(2, 1500)].concat();
        assert_eq!(run(&mut scheduler, 0, &first), (0, "none"));
        assert_eq!(run(&mut scheduler, 1, &longer), (300, "slot"));
        // Both slots have other tokens now.
        for slot in 0..2 {
            run(&mut scheduler, slot, &tokens(5 + slot, 50));
        }
        let other = |seed| [&first[..], &tokens(seed, 20)].concat();
        assert_eq!(run(&mut scheduler, 0, &other(3)), (300, "memory"));
        scheduler.close();
        let mut later = with_disk(model, folder.path(), &rolling);
        assert_eq!(run(&mut later, 0, &other(4)), (300, "disk"));
        let again = [&longer[..], &tokens(3, 20)].concat();
        assert_eq!(run(&mut later, 1, &again), (1800, "disk"));
    });
}
