//! Sequences of a model with recurrent layers, which return to snapshots of their states only.

use rope_cpu::{batch::Request, model::Model};

use crate::batch::harness::{Setup, finish, request, scheduler, submit, tokens};
use rope_cpu_testing::{
    builder::{ARRAY, STRING, string, strings},
    tiny::Tiny,
};

/// Runs `test` with a tiny Qwen 3.5 that has a tokenizer.
fn with_recurrent(test: impl FnOnce(&Model)) {
    let tiny = Tiny::named("qwen35");
    let names: Vec<_> = (0..tiny.vocabulary).map(|i| format!("<{i}>")).collect();
    let file = tiny
        .builder()
        .key("tokenizer.ggml.model", STRING, string("gpt2"))
        .key("tokenizer.ggml.pre", STRING, string("gpt-2"))
        .key("tokenizer.ggml.tokens", ARRAY, strings(&names))
        .key("tokenizer.ggml.merges", ARRAY, strings::<&str>(&[]))
        .file();
    test(&Model::open(file.path()).unwrap());
}

/// Answers a request in a scheduler of its own.
fn alone(model: &Model, request: Request) -> Vec<u32> {
    let (mut scheduler, _) = scheduler(model, Setup::new(1));
    let inbox = submit(&mut scheduler, request);
    finish(&mut scheduler);
    inbox.tokens()
}

#[test]
fn sequences_in_one_batch_are_as_alone() {
    with_recurrent(|model| {
        let requests = [request(tokens(1, 150), 20), request(tokens(2, 90), 30)];
        let (mut scheduler, _) = scheduler(model, Setup::new(2));
        let inboxes = requests.clone().map(|request| submit(&mut scheduler, request));
        finish(&mut scheduler);
        for (request, inbox) in requests.into_iter().zip(inboxes) {
            assert_eq!(inbox.tokens(), alone(model, request));
        }
    });
}

#[test]
fn an_edited_turn_goes_on_from_the_last_snapshot_before_it() {
    with_recurrent(|model| {
        let (mut scheduler, _) = scheduler(model, Setup::new(1));
        let mut run = |prompt: Vec<u32>| {
            let request = request(prompt, 8);
            let inbox = submit(&mut scheduler, request.clone());
            finish(&mut scheduler);
            assert_eq!(inbox.tokens(), alone(model, request));
            (inbox.tokens(), inbox.outcome().unwrap().timings.reused)
        };
        let mut conversation = tokens(1, 300);
        let (answer, reused) = run(conversation.clone());
        assert_eq!(reused, 0);
        conversation.extend(answer);
        let turn = |seed, count| [&conversation[..], &tokens(seed, count)].concat();
        // The last token of an answer is computed with the next turn.
        let end = conversation.len() - 1;
        assert_eq!(run(turn(2, 60)).1, end);
        // The turn is edited from its first token on, and then behind all snapshots in it.
        assert!(run(turn(3, 60)).1 >= end);
        let edited = [&turn(3, 10)[..], &tokens(4, 50)].concat();
        assert!(run(edited).1 >= end);
    });
}
