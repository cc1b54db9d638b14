//! Names the processes that hold a card's memory, in error messages about refused requests.

use std::cmp::Reverse;

use plimsoll_base::{Fact, Order, Reason};
use plimsoll_cards::Holder;
use plimsoll_scheduler::SchedulerEffect;

use super::memory::group_of;
use super::parts::Readings;

/// A refusal names this many processes a card at most.
const MOST_NAMED: usize = 5;

impl Readings {
    /// Names them in the refusal of a request or an order.
    pub(super) fn name_holders_in(&self, effect: &mut SchedulerEffect) {
        match effect {
            SchedulerEffect::Refuse { refusal, .. } => self.name_holders(&mut refusal.reason),
            SchedulerEffect::GiveUpLoad { reason, .. } => self.name_holders(reason),
            _ => {}
        }
    }

    /// Adds the processes of the last reading to each reason that is memory of other processes.
    fn name_holders(&self, reason: &mut Reason) {
        let Some(Fact::Text(card)) = reason.facts.get("card") else {
            return reason.because.iter_mut().for_each(|cause| self.name_holders(cause));
        };
        let engines = self.state.process_groups();
        let reading = self.last.borrow();
        // An engine's memory is its model's claim, which the scheduler names itself.
        let is_engine = |holder: &Holder| group_of(holder).is_some_and(|group| engines.contains(&group));
        let mut holders: Vec<&Holder> = reading
            .holders
            .iter()
            .filter(|holder| holder.card.as_str() == card && !is_engine(holder))
            .collect();
        holders.order_by_key(|holder| Reverse(holder.used));
        let named = || holders.iter().take(MOST_NAMED).map(|holder| named(holder));
        if reason.code == "foreign_memory" {
            return reason.because.extend(named());
        }
        for cause in reason.because.iter_mut().filter(|cause| cause.code == "foreign") {
            cause.because.extend(named());
        }
    }
}

fn named(holder: &Holder) -> Reason {
    let name = holder.name.as_deref().unwrap_or("a process");
    let process = format!("{name} (process {})", holder.pid);
    let reason = match holder.used {
        Some(used) => Reason::new("holder", format!("{process} holds {used}")).fact("used", used),
        None => Reason::new("holder", format!("{process} uses the card")),
    };
    reason.fact("process", u64::from(holder.pid)).fact("name", name)
}
