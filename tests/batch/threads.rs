//! A scheduler on a thread of its own.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use rope_cpu::batch::{Error, Handle, Reply, Status, Update};

use crate::batch::harness::{Inbox, Setup, alone, finish, request, scheduler, tokens, with_model};

#[test]
fn a_handle_leads_to_a_scheduler_on_another_thread() {
    with_model(|model| {
        let (commands, received) = mpsc::channel();
        let (mut scheduler, status) = scheduler(model, Setup::new(1));
        let handle = Handle::new(commands, status);
        thread::scope(|scope| {
            let inboxes = [Inbox::default(), Inbox::default(), Inbox::default()];
            let [first, second, endless] = inboxes.clone();
            let boxed = |reply: Inbox| Box::new(reply) as Box<dyn Reply>;
            let all = vec![
                (request(tokens(1, 20), 10), boxed(first)),
                (request(tokens(2, 20), 10), boxed(second)),
                (request(tokens(3, 20), 900), boxed(endless)),
            ];
            handle.submit(all, 1).unwrap();
            let more = vec![(request(tokens(4, 20), 1), boxed(Inbox::default()))];
            let error = handle.submit(more, 1).unwrap_err();
            assert!(matches!(error, Error::QueueFull { waiting: 1 }), "{error}");

            let running = scope.spawn(move || {
                scheduler.step();
                scheduler.run(&received);
            });
            let (reply, slots) = mpsc::channel();
            while inboxes[2].tokens().is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
            handle
                .act(move |scheduler| reply.send(scheduler.slot(0, 0).is_err()).unwrap())
                .unwrap();
            assert!(slots.recv().unwrap());
            handle.stop(None);
            running.join().unwrap();
            assert!(matches!(inboxes[2].error(), Some(Error::Stopped)));
            for (seed, inbox) in (1..).zip(&inboxes[..2]) {
                assert_eq!(inbox.tokens(), alone(request(tokens(seed, 20), 10)));
            }
            let error = handle.act(|_| {}).unwrap_err();
            assert!(matches!(error, Error::Stopped), "{error}");
        });
    });
}

#[test]
fn without_handles_all_answers_end_before_the_scheduler() {
    with_model(|model| {
        let (commands, received) = mpsc::channel();
        let (scheduler, status) = scheduler(model, Setup::new(2));
        let handle = Handle::new(commands, status.clone());
        let (sender, updates) = mpsc::channel();
        for seed in 0..4 {
            let sender = sender.clone();
            let reply = move |update: Update| sender.send(update).unwrap();
            handle.submit(vec![(request(tokens(seed, 20), 10), Box::new(reply))], 9).unwrap();
        }
        drop((handle, sender));
        scheduler.run(&received);
        let ends = updates.iter().filter(|update| matches!(update, Update::Ended(_))).count();
        assert_eq!(ends, 4);
        let Status { ended, .. } = &*Arc::clone(&status);
        assert!(ended.load(std::sync::atomic::Ordering::Relaxed));
    });
}

#[test]
fn a_scheduler_is_busy_from_the_request_to_the_last_token() {
    with_model(|model| {
        let (mut scheduler, status) = scheduler(model, Setup::new(1));
        assert!(!status.busy());
        let (sender, busy) = mpsc::channel();
        let others = status.clone();
        scheduler.submit(request(tokens(1, 20), 3), move |update: Update| {
            if matches!(update, Update::Generated(_)) {
                sender.send(others.busy()).unwrap();
            }
        });
        assert!(status.busy());
        finish(&mut scheduler);
        assert!(!status.busy());
        assert_eq!(busy.iter().collect::<Vec<_>>(), [true; 3]);
    });
}

#[test]
fn an_answer_goes_on_when_its_reply_has_room_again() {
    with_model(|model| {
        let (commands, received) = mpsc::channel();
        let (mut scheduler, status) = scheduler(model, Setup::new(2));
        let handle = Handle::new(commands, status);
        let [unread, other] = [Inbox::default(), Inbox::default()];
        unread.set_full(true);
        scheduler.submit(request(tokens(1, 20), 10), unread.clone());
        thread::scope(|scope| {
            let running = scope.spawn(move || scheduler.run(&received));
            let boxed = Box::new(other.clone()) as Box<dyn Reply>;
            // The first request may still wait for its slot.
            handle.submit(vec![(request(tokens(2, 20), 10), boxed)], 2).unwrap();
            while other.outcome().is_none() {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(unread.tokens().is_empty());
            unread.set_full(false);
            drop(handle);
            running.join().unwrap();
        });
        assert_eq!(unread.tokens(), alone(request(tokens(1, 20), 10)));
    });
}
