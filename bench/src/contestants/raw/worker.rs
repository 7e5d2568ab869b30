//! A thread that does jobs in order, with a bounded number of them under way.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};

/// The thread, seen from who gives it jobs.
pub struct Worker<J, R> {
    jobs: Option<SyncSender<J>>,
    done: Receiver<Result<R>>,
    thread: Option<JoinHandle<()>>,
    under_way: usize,
    results: VecDeque<R>,
}

impl<J: Send + 'static, R: Send + 'static> Worker<J, R> {
    /// Starts a thread with room for so many jobs.
    pub fn start(
        name: &str,
        room: usize,
        mut work: impl FnMut(J) -> Result<R> + Send + 'static,
    ) -> Result<Self> {
        let (jobs, inbox) = sync_channel::<J>(room);
        let (outbox, done) = sync_channel(room);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                for job in inbox {
                    if outbox.send(work(job)).is_err() {
                        return;
                    }
                }
            })
            .context("starting a writer's thread")?;
        let results = VecDeque::new();
        Ok(Self { jobs: Some(jobs), done, thread: Some(thread), under_way: 0, results })
    }

    /// Gives a job, after waiting until fewer than `depth` are under way.
    pub fn submit(&mut self, job: J, depth: usize) -> Result<()> {
        while self.under_way >= depth {
            self.wait()?;
        }
        let jobs = self.jobs.as_ref().context("a writer's thread has ended")?;
        jobs.send(job).map_err(|_| anyhow!("a writer's thread has ended"))?;
        self.under_way += 1;
        Ok(())
    }

    /// Waits for one job.
    fn wait(&mut self) -> Result<()> {
        self.under_way -= 1;
        let result = self.done.recv().context("a writer's thread has ended")??;
        self.results.push_back(result);
        Ok(())
    }

    /// The result of a job that is done, if one is waiting here.
    pub fn take(&mut self) -> Option<R> {
        self.results.pop_front()
    }

    /// Waits for all jobs.
    pub fn finish(&mut self) -> Result<()> {
        while self.under_way > 0 {
            self.wait()?;
        }
        Ok(())
    }
}

impl<J, R> Drop for Worker<J, R> {
    fn drop(&mut self) {
        self.jobs = None;
        while self.done.recv().is_ok() {}
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            // A panic was printed by the panic hook already.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_done_in_order_and_a_failure_comes_back() {
        let mut worker =
            Worker::start("test", 4, |n: u32| if n == 9 { Err(anyhow!("nine")) } else { Ok(n) })
                .unwrap();
        for n in 0..6 {
            worker.submit(n, 2).unwrap();
        }
        worker.finish().unwrap();
        let results: Vec<u32> = std::iter::from_fn(|| worker.take()).collect();
        assert_eq!(results, [0, 1, 2, 3, 4, 5]);
        worker.submit(9, 2).unwrap();
        assert!(worker.finish().is_err());
    }
}
