//! Tokens of prompts that are computed already.

use rope_cpu::batch::{Error, Request, Wanted};

use crate::batch::harness::{
    Setup, alone, finish, request, step_while, submit, tokens, with_scheduler,
};

/// Returns the first `shared` tokens of all prompts, and some of one alone.
fn prompt(seed: usize, shared: usize) -> Vec<u32> {
    [tokens(1, shared), tokens(10 + seed, 20)].concat()
}

#[test]
fn a_prompt_goes_on_where_a_slot_or_an_earlier_sequence_has_its_tokens() {
    with_scheduler(Setup::new(2), |scheduler, status| {
        let mut run = |request: Request| {
            let inbox = submit(scheduler, request.clone());
            finish(scheduler);
            assert_eq!(inbox.tokens(), alone(request));
            let outcome = inbox.outcome().unwrap();
            (outcome.timings.reused, outcome.source)
        };
        assert_eq!(run(request(prompt(0, 100), 5)), (0, "none"));
        assert_eq!(run(request(prompt(1, 100), 5)), (100, "slot"));
        let fresh = Request { reuse: false, ..request(prompt(2, 100), 5) };
        assert_eq!(run(fresh), (0, "none"));
        // Probabilities of the prompt need all of its outputs.
        let wanted = Wanted { top: 1, after_sampling: false, of_prompt: true, of_end: false };
        let wanted = Request { probabilities: Some(wanted), ..request(prompt(2, 100), 5) };
        assert_eq!(run(wanted), (0, "none"));
        // Both slots have other tokens now, so the memory has the others.
        for slot in 0..2 {
            let other = Request { slot: Some(slot), ..request(tokens(5 + slot, 50), 1) };
            assert_eq!(run(other).0, 0);
        }
        assert_eq!(run(request(prompt(3, 100), 5)), (100, "memory"));
        // The last token of a prompt is always computed.
        assert_eq!(run(request(prompt(3, 100), 5)), (119, "slot"));
        assert_eq!(status.state().reusing, 3);
    });
}

#[test]
fn a_prompt_waits_for_one_that_is_being_read_and_has_many_of_its_tokens() {
    for (shared, reads) in [(100, 176), (60, 160)] {
        with_scheduler(Setup::new(4), |scheduler, status| {
            let both = [0, 1].map(|seed| request(prompt(seed, shared), 6));
            let inboxes = both.clone().map(|request| submit(scheduler, request));
            scheduler.step();
            let busy = || status.state().slots.iter().filter(|slot| slot.busy).count();
            assert_eq!(busy(), if shared == 100 { 1 } else { 2 });
            step_while(scheduler, || inboxes.iter().any(|inbox| inbox.outcome().is_none()));
            let read = |inbox: &crate::batch::harness::Inbox| inbox.outcome().unwrap().timings.read;
            assert_eq!(inboxes.iter().map(read).sum::<usize>(), reads);
            for (request, inbox) in both.into_iter().zip(&inboxes) {
                assert_eq!(inbox.tokens(), alone(request));
            }
        });
    }
}

#[test]
fn tokens_of_another_owner_are_neither_reused_nor_waited_for() {
    with_scheduler(Setup::new(2), |scheduler, status| {
        let of = |owner: u64, seed: usize| Request { owner, ..request(prompt(seed, 100), 5) };
        let mut run = |request: Request| {
            let inbox = submit(scheduler, request);
            finish(scheduler);
            inbox.outcome().unwrap().timings.reused
        };
        assert_eq!((run(of(1, 0)), run(of(2, 0))), (0, 0));
        assert_eq!((run(of(1, 1)), run(of(2, 1))), (100, 100));
        // In the memory, since both slots have tokens of a third owner.
        assert_eq!((run(of(3, 0)), run(Request { slot: Some(1), ..of(3, 5) })), (0, 100));
        assert_eq!((run(of(1, 1)), run(of(2, 2))), (119, 100));
        // Both are read at a time.
        let both = [4, 5].map(|owner| submit(scheduler, of(owner, 0)));
        scheduler.step();
        assert!(status.state().slots.iter().all(|slot| slot.busy));
        finish(scheduler);
        assert!(both.iter().all(|inbox| inbox.outcome().unwrap().timings.reused == 0));
        assert!(matches!(scheduler.slot(0, 1), Err(Error::SlotOfOther(0))));
    });
}
