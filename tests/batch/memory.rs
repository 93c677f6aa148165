//! Answers in a memory of keys and values that is too small for all of them.

use std::sync::atomic::Ordering::Relaxed;

use rope_cpu::{
    batch::{Error, Options},
    generate::{
        self,
        speculation::{Count, Lookup, Speculation},
    },
    model,
};
use rope_cpu_kernels::attention::PAGE as POSITIONS;

use crate::batch::harness::{Setup, alone, engine, finish, request, submit, tokens, with_model};
use crate::batch::harness::{scheduler, with_scheduler};

/// Returns the bytes of `pages` pages of all layers.
fn bytes(pages: usize) -> usize {
    let mut bytes = 0;
    with_model(|model| {
        let mut engine = engine(model, &Setup::new(1));
        let mut sequence = engine.sequence();
        let feed = model::Feed {
            sequence: &mut sequence,
            tokens: &[1],
            role: model::Role::Prompt,
            wanted: 0..0,
            output: model::Output::Logits,
        };
        engine.step(&mut [feed], &mut |_, _, _| {}).unwrap();
        bytes = pages * engine.pool().used_bytes();
    });
    bytes
}

#[test]
fn answers_leave_a_full_memory_and_go_on_with_the_same_tokens() {
    // Each of four needs a second page at some time, and there are five.
    let lengths = [POSITIONS - 60, POSITIONS - 40, POSITIONS - 30, POSITIONS - 10];
    let requests = [0, 1, 2, 3].map(|i| request(tokens(i, lengths[i]), 120));
    let expected = requests.clone().map(alone);
    for drafts in [0, 4] {
        let mut setup = Setup::new(4);
        setup.cache_bytes = bytes(5);
        if drafts > 0 {
            let lookup = || Box::new(Lookup::default()) as _;
            let speculation = |_| Speculation::new(vec![lookup()], Count::Always(drafts));
            let speculations = (0..4).map(speculation).collect();
            setup.options = Options { speculations, ..setup.options };
        }
        with_scheduler(setup, |scheduler, status| {
            let inboxes = requests.clone().map(|request| submit(scheduler, request));
            let mut suspended = 0;
            while !scheduler.is_idle() {
                scheduler.step();
                let open = inboxes.iter().filter(|inbox| inbox.outcome().is_none()).count();
                let busy = status.state().slots.iter().filter(|slot| slot.busy).count();
                suspended = suspended.max(open - busy - status.waiting.load(Relaxed));
            }
            assert!(suspended >= 2, "{suspended}");
            for (inbox, expected) in inboxes.iter().zip(&expected) {
                assert_eq!(inbox.tokens(), *expected);
            }
            let drafted = inboxes.iter().map(|inbox| inbox.outcome().unwrap().timings.drafted);
            assert_eq!(drafted.sum::<usize>() > 0, drafts > 0);
        });
    }
}

#[test]
fn what_nobody_needs_leaves_a_full_memory_first() {
    let mut setup = Setup::new(3);
    setup.cache_bytes = bytes(3);
    with_scheduler(setup, |scheduler, status| {
        let idle = [0, 1].map(|seed| request(tokens(seed, 20), 2));
        let _inboxes = idle.map(|request| submit(scheduler, request));
        finish(scheduler);
        // Its pages fit once one of the two idle slots is cleared.
        let inbox = submit(scheduler, request(tokens(2, POSITIONS + 10), 20));
        finish(scheduler);
        assert_eq!(inbox.tokens().len(), 20);
        let full = status.state().slots.iter().filter(|slot| slot.tokens > 0).count();
        assert_eq!(full, 2);
    });
}

#[test]
fn an_answer_that_fills_the_memory_alone_fails() {
    let mut setup = Setup::new(2);
    setup.cache_bytes = bytes(1);
    with_model(|model| {
        let (mut scheduler, _) = scheduler(model, setup);
        let inbox = submit(&mut scheduler, request(tokens(1, POSITIONS - 5), 20));
        finish(&mut scheduler);
        assert_eq!(inbox.tokens().len(), 6);
        let error = inbox.error().unwrap();
        assert!(
            matches!(error, Error::Generate(generate::Error::Model(model::Error::PoolFull { .. }))),
            "{error}"
        );
        // Others still have the memory.
        let inbox = submit(&mut scheduler, request(tokens(2, 20), 20));
        finish(&mut scheduler);
        assert_eq!(inbox.tokens().len(), 20);
    });
}
