//! Which requests a step computes, and how many of their tokens.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use rope_cpu::{
    batch::{Error, Handle, Reply, Request, Scheduler, Status},
    generate::{self, End},
    model,
};

use crate::batch::harness::{
    CONTEXT, Inbox, Setup, alone, finish, request, scheduler, step_while, submit, tokens,
    with_model, with_scheduler,
};

#[test]
fn answers_do_not_depend_on_what_else_is_computed() {
    let requests: Vec<_> = (0..7).map(|i| request(tokens(i, 5 + 40 * i), 20 + 3 * i)).collect();
    with_scheduler(Setup::new(3), |scheduler, _| {
        let submit = |request| submit(scheduler, request);
        let inboxes: Vec<_> = requests.iter().cloned().map(submit).collect();
        finish(scheduler);
        for (request, inbox) in requests.into_iter().zip(inboxes) {
            assert_eq!(inbox.outcome().unwrap().timings.generated, inbox.tokens().len());
            assert_eq!(inbox.tokens(), alone(request));
        }
    });
}

#[test]
fn requests_get_slots_in_their_order() {
    with_scheduler(Setup::new(1), |scheduler, _| {
        let all: Vec<_> = (0..3).map(|i| submit(scheduler, request(tokens(i, 20), 4))).collect();
        let ended = || all.iter().filter(|inbox| inbox.outcome().is_some()).count();
        for expected in 1..=3 {
            step_while(scheduler, || ended() < expected);
            let first: Vec<_> = all.iter().map(|inbox| inbox.outcome().is_some()).collect();
            assert!(first[..expected].iter().all(|ended| *ended), "{first:?}");
        }
    });
}

#[test]
fn an_answer_pauses_while_its_reply_has_no_room_and_others_go_on() {
    with_scheduler(Setup::new(2), |scheduler, _| {
        let requests = [1, 2].map(|seed| request(tokens(seed, 20), 30));
        let [unread, other] = requests.clone().map(|request| submit(scheduler, request));
        step_while(scheduler, || unread.tokens().len() < 5);
        unread.set_full(true);
        step_while(scheduler, || other.outcome().is_none());
        assert_eq!(unread.tokens().len(), 5);
        // Alone, too.
        (0..10).for_each(|_| scheduler.step());
        assert_eq!(unread.tokens().len(), 5);
        assert!(!scheduler.is_idle());
        unread.set_full(false);
        finish(scheduler);
        for (request, inbox) in requests.into_iter().zip([unread, other]) {
            assert_eq!(inbox.tokens(), alone(request));
        }
    });
}

#[test]
fn short_prompts_go_first_but_the_oldest_is_not_passed_over_twice() {
    with_scheduler(Setup::new(4), |scheduler, _| {
        let long = submit(scheduler, request(tokens(1, 320), 1));
        let short = submit(scheduler, request(tokens(2, 30), 1));
        scheduler.step();
        // The rest of the step.
        assert_eq!((short.read(), long.read()), (30, 2));
        step_while(scheduler, || short.outcome().is_none());
        // However many short prompts arrive, every second step reads the long one.
        let mut steps = 0;
        while long.outcome().is_none() {
            for seed in 0..2 {
                submit(scheduler, request(tokens(3 + seed + 2 * steps, 32), 1));
            }
            scheduler.step();
            steps += 1;
            assert!(steps < 25, "{} tokens are read", long.read());
        }
        assert!(steps > 12, "{steps}");
    });
}

/// Returns the number of tokens that a running answer gets while a prompt of 320 tokens is read.
fn tokens_meanwhile(step_max: Duration) -> usize {
    let mut setup = Setup::new(2);
    setup.micro_batch = 64;
    setup.options.step_max = step_max;
    let mut found = 0;
    with_scheduler(setup, |scheduler, _| {
        // The time of a token of a prompt is known then.
        submit(scheduler, request(tokens(3, 64), 1));
        finish(scheduler);
        let running = submit(scheduler, request(tokens(1, 10), 500));
        step_while(scheduler, || running.tokens().len() < 3);
        let other = submit(scheduler, request(tokens(2, 320), 1));
        step_while(scheduler, || other.outcome().is_none());
        found = running.tokens().len() - 3;
    });
    found
}

#[test]
fn prompts_are_read_in_short_steps_while_an_answer_is_generated() {
    // At least 16 tokens are read in a step, at most as many as fit beside the answer's.
    assert_eq!(tokens_meanwhile(Duration::from_nanos(1)), 320 / 16);
    assert_eq!(tokens_meanwhile(Duration::from_secs(3600)), 320usize.div_ceil(64 - 1));
}

#[test]
fn an_answer_that_nobody_receives_leaves_its_slot() {
    with_scheduler(Setup::new(1), |scheduler, status| {
        let first = submit(scheduler, request(tokens(1, 20), 500));
        let [gone, second] = [2, 3].map(|seed| submit(scheduler, request(tokens(seed, 20), 5)));
        step_while(scheduler, || first.tokens().len() < 3);
        gone.close();
        first.close();
        finish(scheduler);
        let ends = [&first, &gone].map(|inbox| inbox.outcome().unwrap().end);
        assert_eq!((ends, gone.read()), ([End::Caller, End::Caller], 0));
        assert_eq!(second.tokens().len(), 5);
        assert_eq!(status.state().answers, 1);
    });
}

#[test]
fn errors_of_a_request_go_to_its_reply() {
    with_scheduler(Setup::new(2), |scheduler, status| {
        let good = submit(scheduler, request(tokens(1, 20), 5));
        let mut refused = |change: fn(&mut rope_cpu::batch::Request)| {
            let mut request = request(tokens(2, 20), 5);
            change(&mut request);
            let inbox = submit(scheduler, request);
            finish(scheduler);
            inbox.error().unwrap()
        };
        let error = refused(|request| request.prompt.clear());
        assert!(matches!(error, Error::Generate(generate::Error::PromptEmpty)), "{error}");
        let error = refused(|request| request.prompt = tokens(2, CONTEXT + 1));
        let expected = generate::Error::PromptTooLong { tokens: CONTEXT + 1, context: CONTEXT };
        assert_eq!(error.to_string(), expected.to_string());
        let error = refused(|request| request.prompt[7] = 40);
        let expected = model::Error::Token { token: 40, vocabulary: 40 };
        assert_eq!(error.to_string(), expected.to_string());
        let error = refused(|request| request.slot = Some(2));
        assert!(matches!(error, Error::NoSlot { slot: 2, slots: 2 }), "{error}");
        let error = refused(|request| request.adapter_scales = Some([1.0].into()));
        assert!(error.to_string().contains("adapter"), "{error}");
        let error = refused(|request| {
            request.sampling.logit_bias = (0..40).map(|token| (token, f32::NEG_INFINITY)).collect();
        });
        assert!(error.to_string().contains("minus infinity"), "{error}");
        assert_eq!(good.tokens().len(), 5);

        let [running, waiting] = [Inbox::default(), Inbox::default()];
        let request =
            |slot| rope_cpu::batch::Request { slot: Some(slot), ..request(tokens(3, 20), 500) };
        scheduler.submit(request(1), running.clone());
        scheduler.submit(request(1), waiting.clone());
        step_while(scheduler, || running.tokens().len() < 2);
        assert!(matches!(scheduler.slot(1, 0), Err(Error::SlotInUse(1))));
        assert!(!scheduler.slot(0, 0).unwrap().1.tokens().is_empty());
        scheduler.stop(None);
        for inbox in [running, waiting, submit(scheduler, request(0))] {
            assert!(matches!(inbox.error(), Some(Error::Stopped)));
        }
        assert!(scheduler.is_idle());
        assert_eq!(status.waiting.load(std::sync::atomic::Ordering::Relaxed), 0);
    });
}

/// Submits answers of one request.
fn submit_together(
    scheduler: &mut Scheduler<'_>,
    status: &Arc<Status>,
    requests: impl IntoIterator<Item = Request>,
) -> Vec<Inbox> {
    let (commands, received) = mpsc::channel();
    let (requests, inboxes): (Vec<_>, Vec<_>) = requests
        .into_iter()
        .map(|request| {
            let inbox = Inbox::default();
            ((request, Box::new(inbox.clone()) as Box<dyn Reply>), inbox)
        })
        .unzip();
    Handle::new(commands, status.clone()).submit(requests, usize::MAX).unwrap();
    received.try_iter().for_each(|command| command(scheduler));
    inboxes
}

#[test]
fn a_request_with_many_answers_leaves_a_slot_to_another() {
    with_model(|model| {
        let (mut scheduler, status) = scheduler(model, Setup::new(3));
        let many: Vec<_> = (0..5).map(|i| request(tokens(i, 20 + i), 60)).collect();
        let answers = submit_together(&mut scheduler, &status, many.clone());
        step_while(&mut scheduler, || answers[2].tokens().len() < 10);
        let other = request(tokens(9, 30), 20);
        let inbox = submit(&mut scheduler, other.clone());
        step_while(&mut scheduler, || inbox.outcome().is_none());
        assert!(answers.iter().all(|answer| answer.outcome().is_none()));
        assert_eq!(inbox.tokens(), alone(other));
        finish(&mut scheduler);
        for (request, answer) in many.into_iter().zip(answers) {
            // None of its tokens is computed twice.
            let timings = answer.outcome().unwrap().timings;
            assert_eq!(timings.reused + timings.read, request.prompt.len());
            assert_eq!(answer.tokens(), alone(request));
        }
        let computed: u64 = status.state().slot_steps;
        assert!(computed <= 5 * 60 + 20 + 6, "{computed}");
    });
}

#[test]
fn waiting_requests_take_turns_however_many_answers_they_have() {
    with_model(|model| {
        let (mut scheduler, status) = scheduler(model, Setup::new(2));
        let answers = |first: usize| (0..4).map(move |i| request(tokens(first + i, 20), 10));
        let first = submit_together(&mut scheduler, &status, answers(0));
        let second = submit_together(&mut scheduler, &status, answers(10));
        let ended = |all: &[Inbox]| all.iter().filter(|inbox| inbox.outcome().is_some()).count();
        step_while(&mut scheduler, || {
            let counts = [&first, &second].map(|all| ended(all));
            assert!(counts[0].abs_diff(counts[1]) < 2, "{counts:?}");
            counts != [4, 4]
        });
    });
}

#[test]
fn a_displaced_answer_stops_with_its_client_and_with_the_scheduler() {
    with_model(|model| {
        let (mut scheduler, status) = scheduler(model, Setup::new(2));
        let many = (0..2).map(|i| request(tokens(i, 20), 200));
        let answers = submit_together(&mut scheduler, &status, many);
        step_while(&mut scheduler, || answers[1].tokens().is_empty());
        let other = submit(&mut scheduler, request(tokens(9, 30), 100));
        step_while(&mut scheduler, || other.tokens().is_empty());
        answers[1].close();
        answers[0].close();
        step_while(&mut scheduler, || other.outcome().is_none());
        assert!(scheduler.is_idle());
    });
}
