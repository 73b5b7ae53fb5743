//! The threads that wait at addresses (futex(2)).

use std::collections::{HashMap, VecDeque};

/// The waiting threads, by address, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Futexes {
    queues: HashMap<u64, VecDeque<(usize, u32)>>,
}

impl Futexes {
    /// Lets a thread wait at an address, for a wake that has one of these bits.
    pub(crate) fn wait(&mut self, address: u64, thread: usize, bits: u32) {
        self.queues.entry(address).or_default().push_back((thread, bits));
    }

    /// Returns the first `most` threads at an address that wait for one of these bits. They wait no longer.
    pub(crate) fn wake(&mut self, address: u64, most: u64, bits: u32) -> Vec<usize> {
        let Some(queue) = self.queues.get_mut(&address) else { return Vec::new() };
        let mut woken = Vec::new();
        queue.retain(|(thread, wanted)| {
            let goes = wanted & bits != 0 && (woken.len() as u64) < most;
            if goes {
                woken.push(*thread);
            }
            !goes
        });
        if queue.is_empty() {
            self.queues.remove(&address);
        }
        woken
    }

    /// Lets the first `most` threads at one address wait at a different one. Returns their number.
    pub(crate) fn requeue(&mut self, from: u64, to: u64, most: u64) -> u64 {
        let Some(mut queue) = self.queues.remove(&from) else { return 0 };
        let moved = queue.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let rest = queue.split_off(moved);
        self.queues.entry(to).or_default().extend(queue);
        if !rest.is_empty() {
            self.queues.entry(from).or_default().extend(rest);
        }
        moved as u64
    }

    /// Ends the wait of a thread whose time is over. Returns whether it waited here.
    pub(crate) fn leave(&mut self, thread: usize) -> bool {
        let mut has_waited = false;
        for queue in self.queues.values_mut() {
            let before = queue.len();
            queue.retain(|(waiting, _)| *waiting != thread);
            has_waited |= queue.len() < before;
        }
        has_waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u32 = u32::MAX;

    #[test]
    fn threads_are_woken_in_the_order_in_which_they_came() {
        let mut futexes = Futexes::default();
        for thread in [4, 2, 9] {
            futexes.wait(64, thread, ALL);
        }
        futexes.wait(128, 5, ALL);
        assert_eq!(futexes.wake(64, 2, ALL), [4, 2]);
        assert_eq!(futexes.wake(64, u64::MAX, ALL), [9]);
        assert!(futexes.wake(64, 1, ALL).is_empty());
        assert_eq!(futexes.wake(128, 1, ALL), [5]);
    }

    #[test]
    fn bits_choose_who_is_woken() {
        let mut futexes = Futexes::default();
        futexes.wait(64, 1, 0b01);
        futexes.wait(64, 2, 0b10);
        assert_eq!(futexes.wake(64, 9, 0b10), [2]);
        assert_eq!(futexes.wake(64, 9, ALL), [1]);
    }

    #[test]
    fn moved_threads_are_woken_at_their_new_place_and_those_that_left_nowhere() {
        let mut futexes = Futexes::default();
        for thread in 1..=4 {
            futexes.wait(64, thread, ALL);
        }
        futexes.wait(128, 7, ALL);
        assert_eq!(futexes.requeue(64, 128, 2), 2);
        assert!(futexes.leave(3) && !futexes.leave(3));
        assert_eq!(futexes.wake(128, 9, ALL), [7, 1, 2]);
        assert_eq!(futexes.wake(64, 9, ALL), [4]);
        assert_eq!(futexes.requeue(64, 128, 1), 0);
    }
}
