//! Finds the children of a program among the processes that are new on the machine. Only new process numbers are read,
//! which is cheap enough for every moment: a child that is found late counts as time in which its parent waits.

use std::collections::HashSet;

use crate::proc;

/// The most new numbers that are tried one by one. If there are more, every process is read.
const MANY: u64 = 1024;

/// The newest process numbers of the machine.
#[derive(Default)]
pub(crate) struct Family {
    /// The newest number at the last search but one, and at the last search.
    newest: [Option<u64>; 2],
}

impl Family {
    /// The processes that `members` and their children have started since the last search, parents before children.
    ///
    /// The kernel gives numbers in order. A process gets its number a little before it is visible, so each number is
    /// read twice.
    pub(crate) fn grown(&mut self, members: impl Iterator<Item = i32>) -> Vec<i32> {
        let newest = proc::newest();
        let [before, last] = self.newest;
        self.newest = [last, newest];
        let parents = match (before, newest) {
            (Some(before), Some(newest)) if before == newest => return Vec::new(),
            (Some(before), Some(newest)) if (before..before.saturating_add(MANY)).contains(&newest) => {
                let numbers = (before + 1..=newest).filter_map(|number| i32::try_from(number).ok());
                proc::parents(numbers)
            }
            _ => proc::parents(proc::processes()),
        };
        descendants(members, &parents)
    }
}

/// The processes of `parents` that descend from `members`, without those, parents before children.
pub(crate) fn descendants(members: impl Iterator<Item = i32>, parents: &[(i32, i32)]) -> Vec<i32> {
    let mut family: HashSet<i32> = members.collect();
    let mut all = Vec::new();
    loop {
        let children = parents.iter().filter(|(pid, parent)| family.contains(parent) && !family.contains(pid));
        // A thread has its process's parent, but is not a child.
        let children: Vec<i32> = children.map(|(pid, _)| *pid).filter(|pid| proc::is_process(*pid)).collect();
        if children.is_empty() {
            return all;
        }
        family.extend(&children);
        all.extend(children);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_come_after_their_parents_and_strangers_do_not() {
        // Only processes count: this one, and the first of all.
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(descendants([7].into_iter(), &[(own, 1), (1, 7)]), [1, own]);
        assert_eq!(descendants([7].into_iter(), &[(own, 8), (1, 7)]), [1]);
        assert_eq!(descendants([7, own].into_iter(), &[(own, 7)]), Vec::<i32>::new());
    }
}
