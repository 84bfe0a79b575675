//! `top`: shows all semaphores live in the terminal, and lets an operator change them.
//!
//! Read `state.rs` first: it defines the data of `top`. `update.rs` changes the state after an
//! event. `draw/` draws the state. `schedule.rs` decides what to read next, and `calls.rs` calls
//! Redis.

mod calls;
mod cursor;
mod dialogue;
mod draw;
mod event;
mod history;
mod keys;
mod look;
pub mod options;
mod schedule;
mod screen;
mod state;
mod text;
mod update;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use redis_semaphore::SemaphoreClient;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::MissedTickBehavior;

use crate::failure::{Failure, UNAVAILABLE};
use crate::output::report;
use crate::paint::{can_draw, has_colors};
use crate::server::options::Server;
use crate::server::{block_on, connect};
use crate::top::calls::Calls;
use crate::top::event::{Event, Response, Wish};
use crate::top::options::Top;
use crate::top::screen::Screen;
use crate::top::state::{Moment, State};
use crate::top::update::update;

pub fn run(server: &Server, asked: &Top) -> Result<ExitCode, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::usage(
            "top needs a terminal for its output and its keys: `redis-semaphore ls` prints the \
             same values once",
        ));
    }
    if !can_draw(&io::stdout()) {
        return Err(Failure::usage(
            "top cannot draw in this terminal (TERM): `redis-semaphore ls` prints the same values \
             once",
        ));
    }
    block_on(watch(server, asked))?.map(|()| ExitCode::SUCCESS)
}

async fn watch(server: &Server, asked: &Top) -> Result<(), Failure> {
    // `top` connects before it takes the screen, so that errors at the start appear below the
    // prompt.
    let semaphores = connect(server, SemaphoreClient::builder().read_only()).await?;
    let (events, mut coming) = mpsc::unbounded_channel();
    screen::send_signals(events.clone())?;
    let mut screen = Screen::open()?;
    screen::send_keys(events.clone());
    let mut state = State::new(&server.prefix, asked, screen.size()?);
    state.has_colors = has_colors(&io::stdout());
    let mut calls = Calls::new(semaphores, events);
    let mut unseen = Vec::new();
    let outcome = show(state, &mut screen, &mut calls, &mut coming, &mut unseen).await;
    drop(screen);
    unseen.into_iter().for_each(report);
    calls.end(coming).await;
    outcome
}

/// Runs until the user quits. `unseen` gets the outcomes of changes that were not drawn before the
/// user quit. A new picture is drawn at each tick, and after each key before the next key is
/// handled. A reply draws no picture, because with thousands of semaphores replies arrive too fast
/// to be seen.
async fn show(
    mut state: State,
    screen: &mut Screen,
    calls: &mut Calls,
    coming: &mut UnboundedReceiver<Event>,
    unseen: &mut Vec<String>,
) -> Result<(), Failure> {
    let pace = (state.every / 4).clamp(Duration::from_millis(20), Duration::from_millis(250));
    let mut ticks = tokio::time::interval(pace);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_old = true;
    loop {
        let now = Moment::now();
        schedule::due(&mut state, now.instant).into_iter().for_each(|call| calls.make(call));
        if is_old {
            state.settle();
            screen.draw(|frame| draw::draw(&state, now, frame))?;
            unseen.clear();
        }
        let mut event = tokio::select! {
            event = coming.recv() => event,
            _ = ticks.tick() => None,
        };
        is_old = event.is_none();
        while let Some(happened) = event {
            is_old |= !matches!(happened, Event::Response(_));
            if let Event::Response(Response::Changed { outcome, .. }) = &happened {
                unseen.push(outcome.clone());
            }
            if matches!(happened, Event::Continued) {
                screen.resume()?;
            }
            match update(&mut state, happened, Moment::now()) {
                Some(Wish::Call(call)) => calls.make(call),
                Some(Wish::Leave) => return Ok(()),
                Some(Wish::Fail(reason)) => return Err(Failure::new(UNAVAILABLE, reason)),
                None => {}
            }
            // A key applies to the visible picture, so a new picture is drawn before the next key
            // is handled.
            event = if is_old { None } else { coming.try_recv().ok() };
        }
    }
}
