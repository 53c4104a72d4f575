//! The thread of the node: it finds or founds the group, then takes turns until it is told to stop.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_blocking, spawn_local};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::door::{Call, Door};
use super::error::NodeError;
use super::facts::{Acquaintances, GroupFacts, PeerState};
use super::founding::Founding;
use super::link::facts::PeerFacts;
use super::link::settings::{Contact, Deadlines, Identity, LinkSettings, PeerHome, Security, Versions};
use super::link::{Greeted, Links, Offer, Receiver, Verdict};
use super::opening;
use super::turns::{Arrived, Bounds, Turns};
use crate::base::clock::Clock;
use crate::base::node_address::NodeAddress;
use crate::base::rng::Rng;
use crate::consensus::fetch::{Fetch, Fetcher};
use crate::consensus::limits::TICK;
use crate::consensus::message::Message;
use crate::consensus::output::Refusal;
use crate::log::directory::Directory;
use crate::log::platform::Platform;
use crate::log::replicated::log::EntryLog;
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::{History, Home, Members};
use crate::log::replicated::recovery::newest_snapshot;
use crate::log::replicated::types::{GroupId, NodeId};
use crate::log::replicated::write::Recovered;
use crate::log::snapshot::writer::remove_older;

/// Threads that look up names of hosts and read files for the node.
const BLOCKING_THREADS_MAX: usize = 16;

/// How long the end of a node waits for them.
const BLOCKING_END_MAX: Duration = Duration::from_secs(2);

/// How often a node makes known how far its peers are. That one is connected or not is known at once.
const FACTS_EVERY: Duration = Duration::from_millis(100);

/// How often a node that waits for the other founders, or to be added, says so.
const WAITING_REPORT_EVERY: Duration = Duration::from_secs(5);

/// What a node is told when it starts.
pub(crate) struct NodeSettings {
    pub(crate) group: GroupId,
    pub(crate) node: NodeId,
    /// Where clients and other nodes reach this one.
    pub(crate) contact: Contact,
    /// The founders of the group. A node that is not among them joins a group that is there.
    pub(crate) founders: BTreeMap<NodeId, NodeAddress>,
    /// The host and port to listen on for other nodes.
    pub(crate) listen: String,
    pub(crate) security: Security,
    pub(crate) deadlines: Deadlines,
    /// Versions of the log and of the effects that this program understands.
    pub(crate) versions: Versions,
    pub(crate) bounds: Bounds,
    pub(crate) platform: Platform,
}

/// The thread of a node. It ends with this.
pub(crate) struct NodeThread {
    door: Arc<Door>,
    thread: Option<JoinHandle<()>>,
}

impl NodeThread {
    /// Starts a node in its own directory. If it ends by itself, its last news says why.
    pub(crate) fn start(
        settings: NodeSettings,
        directory: Arc<Directory>,
        door: Arc<Door>,
    ) -> Result<NodeThread, NodeError> {
        let failed = |error| NodeError::Thread { what: "the thread of the node", error };
        // Names of hosts are looked up, and files are read, on threads beside it. A name may hang for a while.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .build()
            .map_err(failed)?;
        let its_door = Arc::clone(&door);
        let run = move || {
            let ended = LocalSet::new().block_on(&runtime, run(settings, directory, &its_door));
            if let Err(error) = ended {
                its_door.tell(|news| news.failure = Some(error));
            }
            // Writers of files end at once, and then nobody holds the directory. Only a name may hang.
            runtime.shutdown_timeout(BLOCKING_END_MAX);
        };
        let thread = thread::Builder::new().name("node".to_owned()).spawn(run).map_err(failed)?;
        Ok(NodeThread { door, thread: Some(thread) })
    }
}

impl Drop for NodeThread {
    fn drop(&mut self) {
        self.door.call(Call::Stop);
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// News from the links since the last turn.
struct Inbox {
    arrived: RefCell<Arrived>,
    offers: RefCell<Vec<Offer>>,
    greeted: RefCell<Vec<Greeted>>,
    /// The nodes that do not count this one among their peers.
    turned_away: RefCell<Vec<(Greeted, Verdict)>>,
    acquaintances: RefCell<Acquaintances>,
    /// Something has changed that others want to know of.
    has_facts: Cell<bool>,
    wake: Arc<Notify>,
}

impl Inbox {
    fn new(wake: Arc<Notify>) -> Inbox {
        Inbox {
            arrived: RefCell::default(),
            offers: RefCell::default(),
            greeted: RefCell::default(),
            turned_away: RefCell::default(),
            acquaintances: RefCell::default(),
            has_facts: Cell::new(true),
            wake,
        }
    }

    fn note_facts(&self) {
        self.has_facts.set(true);
        self.wake.notify_one();
    }
}

impl Receiver for Inbox {
    fn received(&self, peer: NodeId, message: Message) {
        self.arrived.borrow_mut().messages.push((peer, message));
        self.wake.notify_one();
    }

    fn offered(&self, offer: Offer) {
        self.offers.borrow_mut().push(offer);
        self.wake.notify_one();
    }

    fn greeted(&self, greeted: Greeted) {
        self.acquaintances.borrow_mut().greeted(&greeted);
        self.greeted.borrow_mut().push(greeted);
        self.note_facts();
    }

    fn knocked(&self, stranger: Greeted) {
        self.acquaintances.borrow_mut().knocked(stranger);
        self.note_facts();
    }

    fn turned_away(&self, by: Greeted, why: Verdict) {
        self.turned_away.borrow_mut().push((by, why));
        self.wake.notify_one();
    }

    fn connected(&self, _: NodeId) {
        self.note_facts();
    }

    fn disconnected(&self, _: NodeId) {
        self.note_facts();
    }
}

/// Whom a node without data has met.
enum Met {
    /// All founders of a new group.
    All(Members),
    /// A group that exists and does not know this node.
    Group,
    /// The node is told to stop.
    Nobody,
}

/// A node that listens to others, and may have no data yet.
struct Node<'a> {
    settings: NodeSettings,
    directory: Arc<Directory>,
    door: &'a Door,
    inbox: Rc<Inbox>,
    links: Links,
    wake: Arc<Notify>,
    /// See [`GroupFacts`].
    certificate_expires_s: Option<i64>,
}

async fn run(settings: NodeSettings, directory: Arc<Directory>, door: &Arc<Door>) -> Result<(), NodeError> {
    let newest = newest_snapshot(&directory)?;
    let wake = door.wake_node();
    let inbox = Rc::new(Inbox::new(Arc::clone(&wake)));
    let history = newest.as_ref().map_or(History::UNKNOWN, |mark| mark.members.history);
    let links = LinkSettings {
        group: settings.group,
        node: settings.node,
        identity: Identity { birth: directory.id().birth(), history },
        contact: settings.contact.clone(),
        versions: settings.versions,
        security: settings.security.clone(),
        deadlines: settings.deadlines,
    };
    let links = Links::start(links, &settings.listen, Rc::<Inbox>::clone(&inbox)).await?;
    let certificate_expires_s = settings.security.expires_s();
    let node = Node { settings, directory, door, inbox, links, wake, certificate_expires_s };
    node.set_peers(newest.as_ref().map(|mark| &mark.members));
    let (recovered, log) = match newest {
        Some(mark) => node.open(Some(mark))?,
        None if node.settings.founders.contains_key(&node.settings.node) => match node.meet_founders().await? {
            Met::All(members) => node.found(members)?,
            Met::Group => node.join()?,
            Met::Nobody => return Ok(()),
        },
        None => node.join()?,
    };
    node.serve(recovered, log, Arc::clone(door)).await
}

impl Node<'_> {
    /// Sets the peers: the members, or, while they are not known, the nodes of the configuration.
    fn set_peers(&self, members: Option<&Members>) {
        let founders = &self.settings.founders;
        let of_member = |node: NodeId, members: &Members| {
            let home = members.homes.get(&node);
            let address = home.map(|home| &home.address).or_else(|| founders.get(&node))?;
            Some(PeerHome { node, address: address.for_nodes(), birth: home.map(|home| home.birth) })
        };
        let peers: Vec<PeerHome> = match members.filter(|members| members.count() > 0) {
            Some(members) => members.all().filter_map(|node| of_member(node, members)).collect(),
            None => {
                let of_founder = |(node, address): (&NodeId, &NodeAddress)| PeerHome {
                    node: *node,
                    address: address.for_nodes(),
                    birth: None,
                };
                founders.iter().map(of_founder).collect()
            }
        };
        self.links.set_peers(&peers);
    }

    /// Opens the log behind a snapshot.
    fn open(&self, snapshot: Option<Mark>) -> Result<(Recovered, EntryLog), NodeError> {
        opening::open(&self.directory, snapshot, &self.settings.platform, self.notify())
    }

    fn notify(&self) -> opening::Notify {
        let wake = Arc::clone(&self.wake);
        Box::new(move || wake.notify_one())
    }

    /// Opens an empty log, to which the group sends what it has once this node is a member.
    fn join(&self) -> Result<(Recovered, EntryLog), NodeError> {
        tracing::info!(
            "this node has no data, and waits to be added to its group: `tidegate node add {}`",
            self.settings.node
        );
        self.open(None)
    }

    /// Begins the group with the other founders.
    fn found(&self, members: Members) -> Result<(Recovered, EntryLog), NodeError> {
        let stamp = (Rng::from_entropy().next_u64(), Clock::system().now_ms());
        let founded = opening::found(&self.directory, members, &self.settings.platform, self.notify(), stamp)?;
        let founders: Vec<String> = founded.0.snapshot.members.all().map(|node| node.to_string()).collect();
        tracing::info!("the group is founded by the nodes {}", founders.join(", "));
        Ok(founded)
    }

    /// Waits until all founders are known, or a group that is there already.
    async fn meet_founders(&self) -> Result<Met, NodeError> {
        let home = Home { address: self.settings.contact.address.clone(), birth: self.directory.id().birth() };
        let mut founding = Founding::new(self.settings.node, home, &self.settings.founders);
        let mut report_at = Instant::now() + WAITING_REPORT_EVERY;
        loop {
            for greeted in mem::take(&mut *self.inbox.greeted.borrow_mut()) {
                if let Some(members) = founding.greeted(greeted)? {
                    return Ok(Met::All(members));
                }
            }
            // Who is refused by its birth has lost its directory, and can't join in its stead.
            let turned_away = self.inbox.turned_away.take();
            if turned_away.iter().any(|(by, why)| *why == Verdict::NoPeer && is_of_group(by)) {
                return Ok(Met::Group);
            }
            // Others may be further already. They repeat what matters.
            self.inbox.arrived.take();
            self.inbox.offers.take();
            if self.door.take_calls().iter().any(|call| matches!(call, Call::Stop)) {
                return Ok(Met::Nobody);
            }
            if timeout_at(report_at, self.wake.notified()).await.is_err() {
                let awaited: Vec<String> =
                    founding.awaited().map(|(node, address)| format!("{node} ({})", address.for_nodes())).collect();
                tracing::info!("waiting to found the group with the nodes {}", awaited.join(", "));
                report_at = Instant::now() + WAITING_REPORT_EVERY;
            }
        }
    }

    /// Takes turns until the node is told to stop.
    async fn serve(&self, recovered: Recovered, log: EntryLog, door: Arc<Door>) -> Result<(), NodeError> {
        let log = Arc::new(log);
        let fetcher = Arc::<Mutex<Fetcher>>::default();
        let seed = Rng::from_entropy().next_u64();
        let mut turns = Turns::new(self.settings.node, recovered, Arc::clone(&log), door, self.settings.bounds, seed)?;
        let mut members = Members::default();
        let mut refusals = BTreeMap::new();
        let mut facts_at = Instant::now();
        let mut ticks = interval(TICK);
        // A lease counts on it that a node never makes up for ticks that it has missed.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            for Offer { message, bytes, answer } in self.inbox.offers.take() {
                let judged = turns.offered(message.from, &message, bytes);
                // The connection may have ended meanwhile.
                let _ = answer.send(judged.map_err(|unwanted| unwanted.to_string()));
            }
            let mut arrived = self.inbox.arrived.take();
            arrived.is_turned_away = self.inbox.turned_away.take().iter().any(|(by, _)| is_of_group(by));
            let done = turns.turn(arrived)?;
            self.inbox.greeted.borrow_mut().clear();
            if *turns.members() != members {
                members = turns.members().clone();
                self.links.set_history(members.history);
                self.set_peers(Some(&members));
            }
            for message in done.messages {
                self.links.send(message);
            }
            if !turns.leads() {
                // Only a leader's snapshots are taken, and the next leader sends its own.
                self.links.end_transfers();
            }
            for message in done.streams {
                self.transfer(message);
            }
            for fetch in done.fetches {
                self.fetch(fetch, Arc::clone(&log), Arc::clone(&fetcher));
            }
            if let Some(lsn) = done.outdated {
                let directory = Arc::clone(&self.directory);
                // To remove a long file takes a while.
                drop(spawn_blocking(move || remove_older(&directory, lsn)));
            }
            for (peer, refusal) in done.refused {
                warn_of(peer, refusal, &mut refusals);
            }
            if self.inbox.has_facts.take() || Instant::now() >= facts_at {
                facts_at = Instant::now() + FACTS_EVERY;
                turns.make_known(self.facts(&turns, &log));
            }
            if turns.is_over() {
                drop(log);
                turns.close();
                return Ok(());
            }
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Returns what this node knows of its group.
    fn facts(&self, turns: &Turns, log: &EntryLog) -> GroupFacts {
        let mut acquaintances = self.inbox.acquaintances.borrow_mut();
        let of_peer = |link: PeerFacts| {
            let progress = turns.progress_of(link.node);
            PeerState {
                contact: acquaintances.contact(link.node),
                missing: progress.map(|(missing, _)| missing),
                lsn: progress.and_then(|(_, lsn)| lsn),
                link,
            }
        };
        let peers = self.links.facts().into_iter().map(of_peer).collect();
        GroupFacts {
            own: Some(self.settings.node),
            term: turns.term(),
            peers,
            strangers: acquaintances.strangers(),
            times: Arc::clone(log.times()),
            certificate_expires_s: self.certificate_expires_s,
        }
    }

    /// Reads entries from the files, on another thread. A later turn has them.
    fn fetch(&self, fetch: Fetch, log: Arc<EntryLog>, fetcher: Arc<Mutex<Fetcher>>) {
        let inbox = Rc::clone(&self.inbox);
        let read = move || fetcher.lock().unwrap_or_else(PoisonError::into_inner).read(&log, &fetch);
        spawn_local(async move {
            if let Ok(read) = spawn_blocking(read).await {
                inbox.arrived.borrow_mut().fetched.push((fetch.number, read));
                inbox.wake.notify_one();
            }
        });
    }

    /// Sends a snapshot. Its end is told in a later turn.
    fn transfer(&self, message: Message) {
        let (to, inbox) = (message.to, Rc::clone(&self.inbox));
        self.links.transfer(message, Arc::clone(&self.directory), move |has_arrived| {
            inbox.arrived.borrow_mut().reports.push((to, has_arrived));
            inbox.wake.notify_one();
        });
    }
}

/// Whether a node is in a group that exists.
fn is_of_group(node: &Greeted) -> bool {
    node.identity.history != History::UNKNOWN
}

/// Logs the refusal of a node's message, unless it is the same as the last one.
fn warn_of(peer: NodeId, refusal: Refusal, known: &mut BTreeMap<NodeId, Refusal>) {
    if known.insert(peer, refusal) != Some(refusal) {
        tracing::error!("a message of node {peer} was refused: {refusal}");
    }
}
