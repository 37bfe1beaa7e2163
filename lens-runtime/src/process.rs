//! What does the operating system do to the process? It ends it, by a signal or by `exit`, and copies it, by `fork`.
//!
//! Here alone Lens is `unsafe`: whoever wants to hear of these must give the C library a function to call, and what
//! such a function may do is little. Ours touch atomics and write a byte to a pipe; a thread reads it and does the rest.
//!
//! A signal is asked for only where it would end the process, and then still does, once telemetry is written. A program
//! may take it over at any time, before or after: its handler replaces ours, and where it calls ours all the same,
//! as those of `tokio` and `signal-hook` do, telemetry is flushed and goes on.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::os::fd::IntoRawFd as _;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::thread;

use libc::c_int;

/// How many forks lie between this process and the first one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The ends of two pipes: where a request is written to, and where it is read that an exit may go on. Negative where
/// no thread listens, as in a process that was forked.
static REQUESTS: AtomicI32 = AtomicI32::new(-1);
static ANSWERS: AtomicI32 = AtomicI32::new(-1);

/// Whether the C library knows our functions. In a forked process it knows them, too.
static REGISTERED: Once = Once::new();

/// What is asked of the thread. Other numbers are those of signals.
const FLUSH: u8 = 0;
const EXIT: u8 = u8::MAX;

/// Which process this is: a number that differs from that of the process from which it was forked. Threads other than
/// the one that forked are not in it, so that what relies on one of them must not be used where it changes.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// What can be done when the process is about to end.
#[derive(Clone, Copy)]
pub(crate) struct Last {
    /// Writes what there is, and goes on.
    pub(crate) flush: fn(),
    /// Ends telemetry; what ends it is told.
    pub(crate) stop: fn(&'static str),
}

/// Listens from here on to what happens to this process.
///
/// # Errors
/// If the system gives no thread, or no pipe.
pub(crate) fn listen(last: Last) -> io::Result<()> {
    if REQUESTS.load(Ordering::Acquire) >= 0 {
        return Ok(());
    }
    let (requests, ask) = pipe()?;
    let (answered, answer) = pipe()?;
    thread::Builder::new().name("lens-process".to_owned()).spawn(move || serve(requests, answer, last))?;
    ANSWERS.store(answered.into_raw_fd(), Ordering::Release);
    REQUESTS.store(ask.into_raw_fd(), Ordering::Release);
    REGISTERED.call_once(|| {
        registration::at_fork();
        registration::at_exit();
    });
    for signal in [libc::SIGTERM, libc::SIGINT] {
        if registration::is_default(signal) {
            registration::at_signal(signal);
        }
    }
    Ok(())
}

/// Asks for what was recorded to be written, soon, by a thread of ours: for the program's own handler of a signal.
///
/// Lens handles SIGTERM and SIGINT by itself where nobody else does: it writes what there is, ends the spans that are
/// open, and lets the signal end the process as it would have. A program that handles them, say to write a checkpoint,
/// calls this first in its handler, and goes on to [`Telemetry::shutdown`](crate::Telemetry::shutdown) when it is done.
///
/// It may be called from anywhere, within a signal handler too, and does not wait. It does nothing where no telemetry
/// is on.
///
/// # Example
/// ```no_run
/// # fn set_handler(handler: impl Fn() + Send + 'static) {}
/// set_handler(|| {
///     lens_runtime::flush_on_signal();
///     // Tell the training loop to write a checkpoint and to end.
/// });
/// ```
pub fn flush_on_signal() {
    ask(FLUSH);
}

fn ask(request: u8) {
    let pipe = REQUESTS.load(Ordering::Acquire);
    if pipe >= 0 {
        registration::write_byte(pipe, request);
    }
}

/// The thread that does what a handler must not do.
fn serve(mut requests: PipeReader, mut answer: PipeWriter, last: Last) {
    let mut request = [FLUSH];
    while requests.read_exact(&mut request).is_ok() {
        match request[0] {
            FLUSH => (last.flush)(),
            EXIT => {
                (last.stop)("exit");
                let _is_exiting = answer.write_all(&[EXIT]);
            }
            signal => {
                let signal = c_int::from(signal);
                match registration::is_default(signal) {
                    true => (last.stop)("signal"),
                    false => (last.flush)(),
                }
                // Unless the program took it over meanwhile, it ends the process as if nobody had listened.
                if registration::is_default(signal) {
                    registration::send(signal);
                }
            }
        }
    }
}

#[expect(
    unsafe_code,
    reason = "there is no other way to hear of signals, exits and forks, and no crate leaves a signal to a later owner"
)]
mod registration {
    use std::io::{Error, ErrorKind};
    use std::mem::zeroed;
    use std::ptr::{null, null_mut};
    use std::sync::atomic::Ordering;

    use libc::{SA_RESETHAND, SA_RESTART, SIG_DFL, c_int, sigaction, sighandler_t};

    use super::{ANSWERS, EXIT, GENERATION, REQUESTS, ask};

    unsafe extern "C" {
        // POSIX; the `libc` crate lacks it for Linux.
        fn pthread_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> c_int;
    }

    /// In a forked process: its own number, and nobody who listens.
    pub(super) fn at_fork() {
        extern "C" fn in_child() {
            GENERATION.fetch_add(1, Ordering::Relaxed);
            REQUESTS.store(-1, Ordering::Relaxed);
            ANSWERS.store(-1, Ordering::Relaxed);
        }
        // SAFETY: the function touches atomics alone, as one may between `fork` and `exec`.
        let _no_memory = unsafe { pthread_atfork(None, None, Some(in_child)) };
    }

    /// When the program calls `exit`, or `main` returns: telemetry that nobody has shut down is.
    pub(super) fn at_exit() {
        extern "C" fn at_exit() {
            let answers = ANSWERS.load(Ordering::Acquire);
            if answers >= 0 {
                ask(EXIT);
                let mut byte = EXIT;
                // SAFETY: `byte` is one byte that lives as long as the call. The thread answers in bounded time.
                while unsafe { libc::read(answers, (&raw mut byte).cast(), 1) } < 0
                    // By a handler of the program's.
                    && Error::last_os_error().kind() == ErrorKind::Interrupted
                {}
            }
        }
        // SAFETY: the function needs no thread-local variables, which may be gone by then, and does not unwind.
        let _no_memory = unsafe { libc::atexit(at_exit) };
    }

    /// Whether a signal does what it does by default.
    pub(super) fn is_default(signal: c_int) -> bool {
        // SAFETY: all zeros are a value of this plain structure, and the call only writes to it.
        unsafe {
            let mut now: sigaction = zeroed();
            sigaction(signal, null(), &raw mut now) == 0 && now.sa_sigaction == SIG_DFL
        }
    }

    pub(super) fn at_signal(signal: c_int) {
        extern "C" fn on_signal(signal: c_int) {
            match REQUESTS.load(Ordering::Acquire) {
                // Forked from a process that listens. By `SA_RESETHAND` the signal now does what it does by default.
                // SAFETY: may be called in a handler, and does not touch memory.
                ..0 => drop(unsafe { libc::raise(signal) }),
                _ => ask(u8::try_from(signal).unwrap_or_default()),
            }
        }
        let handler: extern "C" fn(c_int) = on_signal;
        // SAFETY: the handler is of the kind that goes without `SA_SIGINFO`, and calls nothing that a handler must not.
        unsafe {
            let mut action: sigaction = zeroed();
            action.sa_sigaction = handler as sighandler_t;
            // A second signal ends the process at once, and no call of the program's is interrupted.
            action.sa_flags = SA_RESETHAND | SA_RESTART;
            sigaction(signal, &raw const action, null_mut());
        }
    }

    /// Sends a signal to this process, whichever of its threads may have blocked it.
    pub(super) fn send(signal: c_int) {
        // SAFETY: touches no memory.
        let _cannot_fail = unsafe { libc::kill(libc::getpid(), signal) };
    }

    /// May be called in a handler.
    pub(super) fn write_byte(pipe: c_int, byte: u8) {
        // SAFETY: `byte` is one byte that lives as long as the call. The pipe holds thousands of requests before a
        // write would wait, and is never closed.
        let _failed = unsafe { libc::write(pipe, (&raw const byte).cast(), 1) };
    }
}
