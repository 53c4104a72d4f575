//! The naive model of a stock: lists, sums, and replies as text.

use std::collections::BTreeMap;

use super::NOT_HELD;

/// Units that an order holds.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) order: String,
    units: u64,
    token: u64,
    until_ms: i64,
    subject: String,
}

/// The naive model of one stock.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) now_ms: i64,
    pub(super) total: u64,
    pub(super) sold: u64,
    pub(super) low: Option<(u64, i64)>,
    pub(super) period_ms: i64,
    pub(super) has_stream: bool,
    pub(super) holds: Vec<Hold>,
    /// Units, and the time of the sale.
    sales: BTreeMap<String, (u64, i64)>,
    refills: BTreeMap<String, u64>,
    /// Units, and the time of the last purchase.
    pub(super) bought: BTreeMap<String, (u64, i64)>,
    pub(super) refiller: Option<(String, i64)>,
    pub(super) reports: Vec<String>,
}

impl Model {
    pub(super) fn new(now_ms: i64, total: u64, has_stream: bool) -> Model {
        Model { now_ms, total, has_stream, ..Model::default() }
    }

    pub(super) fn held(&self) -> u64 {
        self.holds.iter().map(|hold| hold.units).sum()
    }

    pub(super) fn available(&self) -> u64 {
        self.total.saturating_sub(self.held() + self.sold)
    }

    pub(super) fn held_for(&self, subject: &str) -> u64 {
        self.holds.iter().filter(|hold| hold.subject == subject).map(|hold| hold.units).sum()
    }

    pub(super) fn bought_by(&self, subject: &str) -> u64 {
        let counts = |at_ms: i64| self.period_ms == 0 || self.now_ms < at_ms + self.period_ms;
        self.bought.get(subject).filter(|(_, at_ms)| counts(*at_ms)).map_or(0, |(units, _)| *units)
    }

    fn per_left(&self, per: Option<(&str, u64)>) -> i64 {
        per.map_or(-1, |(subject, max)| max.saturating_sub(self.held_for(subject) + self.bought_by(subject)) as i64)
    }

    /// A hold has ended.
    fn report(&mut self, event: &str, hold: &Hold) {
        if self.has_stream {
            self.reports.push(format!("{event} {} {} {}", hold.order, hold.units, hold.subject).trim_end().to_owned());
        }
    }

    /// The time for which the caller is named to refill, if it is.
    fn refill_ms(&mut self, order: &str) -> i64 {
        if let Some((refiller, until_ms)) = &self.refiller
            && self.now_ms < *until_ms
            && self.low.is_some_and(|(_, refill_ms)| until_ms - self.now_ms <= refill_ms)
        {
            return if refiller == order { until_ms - self.now_ms } else { 0 };
        }
        match self.low {
            Some((low, refill_ms)) if self.available() <= low => {
                self.refiller = Some((order.to_owned(), self.now_ms + refill_ms));
                refill_ms
            }
            _ => 0,
        }
    }

    pub(super) fn reserve(
        &mut self,
        order: &str,
        units: u64,
        lease_ms: i64,
        per: Option<(&str, u64)>,
        token: u64,
    ) -> String {
        let until_ms = self.now_ms + lease_ms;
        if let Some(own) = self.holds.iter_mut().find(|hold| hold.order == order) {
            if own.units != units || per.is_some_and(|(subject, _)| subject != own.subject) {
                return "-ERR".to_owned();
            }
            own.until_ms = own.until_ms.max(until_ms);
            let own = own.clone();
            return self.granted(&own, per);
        }
        let (available, left) = (self.available(), self.per_left(per));
        let refused = |reason, retry_after_ms: i64, refill_ms: i64| {
            format!(
                "0 reason {reason} available {available} per-left {left} \
                 retry-after-ms {retry_after_ms} refill-ms {refill_ms}"
            )
        };
        if self.sales.contains_key(order) {
            return refused("sold", -1, 0);
        }
        if per.is_some() && left < units as i64 {
            return refused("per", -1, 0);
        }
        if available < units {
            let first_ms = self.holds.iter().map(|hold| hold.until_ms - self.now_ms).min();
            let may_ever_fit = units <= self.total.saturating_sub(self.sold);
            return refused("short", first_ms.filter(|_| may_ever_fit).unwrap_or(-1), self.refill_ms(order));
        }
        let (order, subject) = (order.to_owned(), per.map_or("", |(subject, _)| subject).to_owned());
        let hold = Hold { order, units, token, until_ms, subject };
        self.holds.push(hold.clone());
        self.granted(&hold, per)
    }

    fn granted(&mut self, hold: &Hold, per: Option<(&str, u64)>) -> String {
        let refill_ms = self.refill_ms(&hold.order);
        let (available, left, lease_ms) = (self.available(), self.per_left(per), hold.until_ms - self.now_ms);
        let Hold { token, units, .. } = hold;
        format!(
            "1 token {token} units {units} available {available} per-left {left} \
             lease-ms {lease_ms} refill-ms {refill_ms}"
        )
    }

    fn take(&mut self, order: &str) -> Option<Hold> {
        let at = self.holds.iter().position(|hold| hold.order == order)?;
        Some(self.holds.remove(at))
    }

    pub(super) fn commit(&mut self, order: &str) -> String {
        if let Some(hold) = self.take(order) {
            self.sold += hold.units;
            self.sales.insert(order.to_owned(), (hold.units, self.now_ms));
            if !hold.subject.is_empty() {
                let units = self.bought_by(&hold.subject) + hold.units;
                self.bought.insert(hold.subject.clone(), (units, self.now_ms));
            }
            self.report("sold", &hold);
        }
        match self.sales.get(order) {
            Some((units, at_ms)) => format!("1 units {units} sold-at-ms {at_ms}"),
            None => NOT_HELD.to_owned(),
        }
    }

    pub(super) fn cancel(&mut self, order: &str) -> String {
        match self.take(order) {
            Some(hold) => {
                self.report("cancelled", &hold);
                format!("1 units {} available {}", hold.units, self.available())
            }
            None if self.sales.contains_key(order) => "0 reason sold".to_owned(),
            None => NOT_HELD.to_owned(),
        }
    }

    pub(super) fn add(&mut self, id: &str, units: u64) -> String {
        let added = match self.refills.get(id) {
            Some(before) if *before != units => return "-ERR".to_owned(),
            Some(_) => 0,
            None => {
                self.refills.insert(id.to_owned(), units);
                (self.total, self.refiller) = (self.total + units, None);
                units
            }
        };
        format!("1 added {added} available {} total {}", self.available(), self.total)
    }

    pub(super) fn set(&mut self, total: u64) -> String {
        self.total = total;
        format!("1 available {} held {} sold {} total {total}", self.available(), self.held(), self.sold)
    }

    /// Ends everything that has expired by now.
    pub(super) fn end_leases(&mut self) {
        let now_ms = self.now_ms;
        let (mut over, left) = std::mem::take(&mut self.holds).into_iter().partition(|hold| hold.until_ms <= now_ms);
        let over: &mut Vec<Hold> = &mut over;
        over.sort_by_key(|hold| (hold.until_ms, hold.token));
        self.holds = left;
        over.iter().for_each(|hold| self.report("expired", hold));
    }
}
