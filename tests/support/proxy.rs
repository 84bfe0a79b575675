use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::acl;
use super::delay::{self, Delay, Outlet};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Flow {
    Pass,
    /// The data wait until the flow changes.
    Hold,
    Swallow,
}

/// A proxy between a client and a server, which fails as networks do: it delays or loses replies,
/// and cuts or refuses connections. A connection that subscribes is for messages, and all other
/// connections are for commands. A proxy with a delay does not distinguish them.
pub struct Proxy {
    port: u16,
    control: Arc<Control>,
    listener: JoinHandle<()>,
}

struct Control {
    server: AtomicU16,
    delay: Option<Delay>,
    requests: watch::Sender<Flow>,
    commands: watch::Sender<Flow>,
    replies: watch::Sender<Flow>,
    messages: watch::Sender<Flow>,
    /// The number of pieces of replies that each connection delivers.
    responses: watch::Sender<usize>,
    /// A connection that sends a request with this text gets no more replies.
    silencing: Mutex<Option<Vec<u8>>>,
    refuses: AtomicBool,
    refused: AtomicUsize,
    held_requests: AtomicUsize,
    swallowed_requests: AtomicUsize,
    passed_requests: AtomicUsize,
    accepted: AtomicUsize,
    /// Connections with a number below this value hold the requests that they get.
    stuck: watch::Sender<usize>,
    connections: Mutex<HashMap<usize, Connection>>,
}

struct Connection {
    state: Arc<State>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Default)]
struct State {
    subscribes: AtomicBool,
    /// Whether the connection sent a silencing request.
    is_silent: AtomicBool,
}

impl State {
    fn note(&self, requests: &[u8], control: &Control) {
        let contains = |text: &[u8]| requests.windows(text.len()).any(|window| window == text);
        self.subscribes.fetch_or(contains(b"SUBSCRIBE"), Ordering::SeqCst);
        let silencing = control.silencing.lock().unwrap();
        let is_silencing = silencing.as_ref().is_some_and(|text| contains(text));
        self.is_silent.fetch_or(is_silencing, Ordering::SeqCst);
    }

    fn subscribes(&self) -> bool {
        self.subscribes.load(Ordering::SeqCst)
    }
}

impl Proxy {
    pub async fn start(server: u16) -> Self {
        Self::serving(server, None)
    }

    /// Starts a proxy that delays all data, in both directions. The proxy runs in its own thread,
    /// and therefore works for programs whose runtime is busy.
    pub fn start_with_delay(server: u16, delay: Delay) -> Self {
        let _its_runtime = delay::RUNTIME.enter();
        Self::serving(server, Some(delay))
    }

    fn serving(server: u16, delay: Option<Delay>) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let port = listener.local_addr().unwrap().port();
        let control = Arc::new(Control {
            server: server.into(),
            delay,
            requests: watch::Sender::new(Flow::Pass),
            commands: watch::Sender::new(Flow::Pass),
            replies: watch::Sender::new(Flow::Pass),
            messages: watch::Sender::new(Flow::Pass),
            responses: watch::Sender::new(usize::MAX),
            silencing: Mutex::default(),
            refuses: AtomicBool::new(false),
            refused: AtomicUsize::new(0),
            held_requests: AtomicUsize::new(0),
            swallowed_requests: AtomicUsize::new(0),
            passed_requests: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            stuck: watch::Sender::new(0),
            connections: Mutex::default(),
        });
        let listener = tokio::spawn(accept(listener, control.clone()));
        Self { port, control, listener }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        acl::as_user(&format!("redis://127.0.0.1:{}/", self.port))
    }

    /// Sets the flow of the requests on all connections.
    pub fn requests(&self, flow: Flow) {
        self.control.requests.send_replace(flow);
    }

    pub fn commands(&self, flow: Flow) {
        self.control.commands.send_replace(flow);
    }

    pub fn replies(&self, flow: Flow) {
        self.control.replies.send_replace(flow);
    }

    pub fn messages(&self, flow: Flow) {
        self.control.messages.send_replace(flow);
    }

    /// Limits the number of pieces of replies that each connection delivers.
    pub fn responses(&self, pieces: usize) {
        self.control.responses.send_replace(pieces);
    }

    /// Loses the reply to each request that contains this text, and all later replies on the same
    /// connection.
    pub fn lose_replies_from(&self, request: &str) {
        *self.control.silencing.lock().unwrap() = Some(request.into());
    }

    /// Returns the number of pieces of requests that are held now.
    pub fn held_requests(&self) -> usize {
        self.control.held_requests.load(Ordering::SeqCst)
    }

    /// Returns the number of pieces of requests that have been swallowed.
    pub fn swallowed_requests(&self) -> usize {
        self.control.swallowed_requests.load(Ordering::SeqCst)
    }

    /// Returns the number of pieces of requests that have passed.
    pub fn passed_requests(&self) -> usize {
        self.control.passed_requests.load(Ordering::SeqCst)
    }

    pub fn refused(&self) -> usize {
        self.control.refused.load(Ordering::SeqCst)
    }

    /// Returns the number of connections so far.
    pub fn accepted(&self) -> usize {
        self.control.accepted.load(Ordering::SeqCst)
    }

    /// Returns the number of open connections: for commands, and for messages.
    pub fn open(&self) -> [usize; 2] {
        let connections = self.control.connections.lock().unwrap();
        let open = connections.values().filter(|connection| !connection.tasks[0].is_finished());
        let kinds = open.map(|connection| connection.state.subscribes());
        let (subscribing, others): (Vec<_>, Vec<_>) = kinds.partition(|subscribes| *subscribes);
        [others.len(), subscribing.len()]
    }

    /// If `sticks` is true, holds all further requests on the existing connections. Otherwise,
    /// delivers the held requests and all further requests.
    pub fn stick(&self, sticks: bool) {
        self.control.stuck.send_replace(if sticks { self.accepted() } else { 0 });
    }

    /// Closes the command connections towards the client. Requests of these connections are still
    /// forwarded to the server.
    pub fn hang_up(&self) {
        let connections = self.control.connections.lock().unwrap();
        for connection in connections.values() {
            if !connection.state.subscribes() {
                connection.tasks[1].abort();
            }
        }
    }

    pub fn refuse_connections(&self, refuses: bool) {
        self.control.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Leads new connections to another server.
    pub fn lead_to(&self, server: u16) {
        self.control.server.store(server, Ordering::SeqCst);
    }

    pub fn cut_commands(&self) {
        self.cut(|subscribes| !subscribes);
    }

    pub fn cut_wakeups(&self) {
        self.cut(|subscribes| subscribes);
    }

    pub fn cut_all(&self) {
        self.cut(|_| true);
    }

    fn cut(&self, which: impl Fn(bool) -> bool) {
        self.control.connections.lock().unwrap().retain(|_, connection| {
            let cut = which(connection.state.subscribes());
            if cut {
                connection.tasks.iter().for_each(JoinHandle::abort);
            }
            !cut
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
        self.cut_all();
    }
}

async fn accept(listener: TcpListener, control: Arc<Control>) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        if control.refuses.load(Ordering::SeqCst) {
            control.refused.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let port = control.server.load(Ordering::SeqCst);
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
            continue;
        };
        let number = control.accepted.fetch_add(1, Ordering::SeqCst);
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let to_client = Outlet::new(to_client, control.delay);
        let to_server = Outlet::new(to_server, control.delay);
        let state = Arc::new(State::default());
        let tasks = [
            tokio::spawn(forward_requests(
                number,
                from_client,
                to_server,
                state.clone(),
                control.clone(),
            )),
            tokio::spawn(forward_replies(from_server, to_client, state.clone(), control.clone())),
        ];
        control.connections.lock().unwrap().insert(number, Connection { state, tasks });
    }
}

async fn forward_requests(
    number: usize,
    mut from: OwnedReadHalf,
    mut to: Outlet,
    state: Arc<State>,
    control: Arc<Control>,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        // If the delay is short, the search would take a noticeable part of it.
        if control.delay.is_none() {
            state.note(&buffer[..length], &control);
        }
        control.held_requests.fetch_add(1, Ordering::SeqCst);
        let mut flow = settled(control.requests.subscribe()).await;
        if flow == Flow::Pass && !state.subscribes() {
            flow = settled(control.commands.subscribe()).await;
        }
        let mut stuck = control.stuck.subscribe();
        stuck.wait_for(|stuck| number >= *stuck).await.expect("the control outlives its tasks");
        control.held_requests.fetch_sub(1, Ordering::SeqCst);
        match flow {
            Flow::Swallow => _ = control.swallowed_requests.fetch_add(1, Ordering::SeqCst),
            _ if to.send(&buffer[..length]).await.is_err() => return,
            _ => _ = control.passed_requests.fetch_add(1, Ordering::SeqCst),
        }
    }
}

async fn forward_replies(
    mut from: OwnedReadHalf,
    mut to: Outlet,
    state: Arc<State>,
    control: Arc<Control>,
) {
    let mut buffer = vec![0; 1 << 16];
    let (mut responses, mut pieces) = (control.responses.subscribe(), 0);
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        responses.wait_for(|most| pieces < *most).await.expect("the control outlives its tasks");
        pieces += 1;
        let flow = match state.subscribes() {
            true => settled(control.messages.subscribe()).await,
            false => settled(control.replies.subscribe()).await,
        };
        if state.is_silent.load(Ordering::SeqCst) {
            continue;
        }
        if flow == Flow::Pass && to.send(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// Waits until the flow is not `Hold`, and returns the flow.
async fn settled(mut flow: watch::Receiver<Flow>) -> Flow {
    *flow.wait_for(|flow| *flow != Flow::Hold).await.expect("the control outlives its tasks")
}
