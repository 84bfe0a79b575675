//! Tests of every event in every stage.

use super::*;

/// A stage, as the table below names it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum In {
    /// `Waiting`, and the caller does not wait for the outcome yet.
    Asked,
    /// `Waiting`, and the caller waits for the outcome.
    Awaited,
    /// `Resolved`, and the caller has not received the outcome yet.
    Kept,
    /// `Resolved`, and the caller has received the outcome.
    Delivered,
    Held,
    Ended,
}
use In::{Asked, Awaited, Delivered, Ended, Held, Kept};

const STAGES: [In; 6] = [Asked, Awaited, Kept, Delivered, Held, Ended];

const MS: Duration = Duration::from_millis(1);
/// The server's time in the "queued" reply, and the lease, in ms.
const QUEUED_AT: i64 = 5_000;
const LEASE: i64 = 1_000;

struct Life {
    acquisition: Acquisition,
    receiver: Option<oneshot::Receiver<Outcome>>,
}

impl Life {
    fn in_stage(stage: In) -> Self {
        let acquisition = Acquisition::new(1, "P:c:1:1000:n".to_owned(), 1, Instant::now());
        let mut life = Self { acquisition, receiver: None };
        let events: &[Event] = match stage {
            Asked => &[],
            Awaited => &[Event::Await],
            Kept => &[Event::Grant],
            Delivered => &[Event::Await, Event::Grant],
            Held => &[Event::Grant, Event::Hold],
            Ended => &[Event::End],
        };
        life.acquisition.queued(life.acquisition.created, QUEUED_AT, place(7));
        events.iter().for_each(|event| _ = life.meets(*event));
        assert_eq!(life.stage(), stage);
        life
    }

    fn stage(&self) -> In {
        match &self.acquisition.life.lock().stage {
            Stage::Waiting(None) => Asked,
            Stage::Waiting(Some(_)) => Awaited,
            Stage::Resolved(Some(_)) => Kept,
            Stage::Resolved(None) => Delivered,
            Stage::Held => Held,
            Stage::Ended => Ended,
        }
    }

    /// Returns the result of an event that has a result.
    fn meets(&mut self, event: Event) -> bool {
        let acquisition = &self.acquisition;
        match event {
            Event::Queued => acquisition.queued(acquisition.created + MS, QUEUED_AT, place(8)),
            Event::Grant => acquisition.resolve(Ok(Grant { token: 1, since: acquisition.created })),
            Event::Error => acquisition.resolve(Err(Error::Shutdown)),
            Event::Message => {
                acquisition.granted_by_message(1, QUEUED_AT + LEASE, LEASE as u32 * MS)
            }
            Event::OldMessage => {
                acquisition.granted_by_message(1, QUEUED_AT + LEASE - 1, LEASE as u32 * MS);
            }
            Event::Await => self.receiver = Some(acquisition.await_outcome()),
            Event::WaitAgain => acquisition.wait_again(),
            Event::Hold => return acquisition.hold(),
            Event::End => acquisition.end(),
            Event::EndWait => return acquisition.end_wait(),
        }
        false
    }
}

fn place(ticket: u64) -> Place {
    Place { ticket, position: 1 }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Queued,
    Grant,
    Error,
    Message,
    OldMessage,
    Await,
    WaitAgain,
    Hold,
    End,
    EndWait,
}

/// The stage after each event. The columns are the stages before the event, in the order of
/// [`STAGES`].
const TABLE: [(Event, [In; 6]); 10] = [
    (Event::Queued, [Asked, Awaited, Kept, Delivered, Held, Ended]),
    (Event::Grant, [Kept, Delivered, Kept, Delivered, Held, Ended]),
    (Event::Error, [Kept, Delivered, Kept, Delivered, Held, Ended]),
    (Event::Message, [Kept, Delivered, Kept, Delivered, Held, Ended]),
    (Event::OldMessage, [Asked, Awaited, Kept, Delivered, Held, Ended]),
    (Event::Await, [Awaited, Awaited, Delivered, Delivered, Held, Ended]),
    (Event::WaitAgain, [Asked, Awaited, Asked, Asked, Held, Ended]),
    (Event::Hold, [Held, Held, Held, Held, Held, Ended]),
    (Event::End, [Ended; 6]),
    (Event::EndWait, [Ended, Ended, Ended, Ended, Held, Ended]),
];

#[test]
fn every_event_leads_from_every_stage_to_the_stage_in_the_table() {
    for (event, after) in TABLE {
        for (before, after) in STAGES.into_iter().zip(after) {
            let mut life = Life::in_stage(before);
            life.meets(event);
            assert_eq!(life.stage(), after, "{event:?} in {before:?}");
        }
    }
}

#[test]
fn only_a_wait_becomes_a_permit_and_only_a_wait_is_ended_as_a_wait() {
    for stage in STAGES {
        let is_wait = ![Held, Ended].contains(&stage);
        assert_eq!(Life::in_stage(stage).meets(Event::Hold), is_wait, "{stage:?}");
        assert_eq!(Life::in_stage(stage).meets(Event::EndWait), is_wait, "{stage:?}");
    }
}

#[test]
fn the_first_response_reaches_the_caller_and_later_responses_do_not() {
    for stage in [Asked, Awaited] {
        let mut life = Life::in_stage(stage);
        life.meets(Event::Message);
        life.meets(Event::Error);
        if stage == Asked {
            life.meets(Event::Await);
        }
        let outcome = life.receiver.unwrap().try_recv().unwrap();
        assert_eq!(outcome.unwrap().since, life.acquisition.created, "{stage:?}");
    }
}

#[test]
fn a_caller_that_waits_for_the_response_of_an_ended_acquisition_gets_an_error() {
    for event in [Event::End, Event::EndWait] {
        let mut life = Life::in_stage(Awaited);
        life.meets(event);
        assert!(life.receiver.take().unwrap().try_recv().is_err());
        life.meets(Event::Await);
        assert!(life.receiver.unwrap().try_recv().is_err());
    }
}

/// If a reply arrives after the outcome, the server sent the reply before the outcome.
#[test]
fn a_queued_reply_changes_the_place_of_a_waiting_request_only() {
    for stage in STAGES {
        let mut life = Life::in_stage(stage);
        life.meets(Event::Queued);
        let is_waiting = [Asked, Awaited].contains(&stage);
        let ticket = life.acquisition.place().unwrap().ticket;
        assert_eq!(ticket, if is_waiting { 8 } else { 7 }, "{stage:?}");
    }
}

#[test]
fn each_stage_is_recognized() {
    for stage in STAGES {
        let Life { acquisition, .. } = &Life::in_stage(stage);
        let is_in = |stages: &[In]| stages.contains(&stage);
        assert_eq!(acquisition.is_waiting(), is_in(&[Asked, Awaited]), "{stage:?}");
        assert_eq!(acquisition.is_resolved_or_held(), is_in(&[Kept, Delivered, Held]), "{stage:?}");
        assert_eq!(acquisition.is_ended(), is_in(&[Ended]), "{stage:?}");
    }
}

#[test]
fn the_first_queued_reply_sets_the_place_after_the_outcome_too() {
    let acquisition = Acquisition::new(1, "P:c:1:1000:n".to_owned(), 1, Instant::now());
    acquisition.resolve(Err(Error::Shutdown));
    acquisition.queued(acquisition.created, QUEUED_AT, place(8));
    assert_eq!(acquisition.place().unwrap().ticket, 8);
}

/// The lease began later than the call that got the last "queued" reply.
#[test]
fn the_lease_of_a_granted_waiter_counts_from_the_call_with_its_last_queued_reply() {
    let mut life = Life::in_stage(Awaited);
    life.meets(Event::Queued);
    life.meets(Event::Message);
    let outcome = life.receiver.unwrap().try_recv().unwrap();
    assert_eq!(outcome.unwrap().since, life.acquisition.created + MS);
}

#[test]
fn an_unwanted_permit_has_ended_and_may_be_on_the_server() {
    let unwanted = Acquisition::unwanted("P:c:1:1000:n".to_owned());
    assert!(unwanted.is_ended());
    assert!(unwanted.calls.was_written());
}
