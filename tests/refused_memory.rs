//! The system refuses the nth large request for memory, for every n of a run: each is an error with a
//! reason, never an abort, and the next run is as if it had not happened.
//!
//! The test has a program of its own, since it replaces the allocator and `mmap` of the process. The
//! tests of `interrupted` are here as well, since they replace other functions of the C library.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(unsafe_code, reason = "an allocator and a system call that fail on purpose")]

mod interrupted;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs::File,
    io::BufReader,
    ops::ControlFlow,
    path::Path,
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
};

use nix::libc::{self, MAP_FAILED, c_int, c_long, c_void, off64_t};
use rope_cpu::{
    Token,
    batch::Request,
    generate::Limits,
    kv_cache::CacheType,
    model::Model,
    runtime::{Plan, Scheduling, Settings},
    sample,
    whole_file::regular_file,
};
use rope_cpu_testing::reader::tiny_reader;

/// The smallest request of the allocator that is refused. Below it are the buffers of files, which
/// abort.
const ALLOCATION_MIN: usize = (64 << 10) + 1;

/// The smallest mapping that is refused. The standard library maps smaller stacks for signals, and
/// aborts without them.
const MAPPING_MIN: usize = 24 << 10;

/// The number of large requests until one is refused.
static LEFT: AtomicI64 = AtomicI64::new(i64::MAX);

/// Whether no request is refused. The tokenizer is read then: compiled regular expressions abort
/// without memory.
static PAUSED: AtomicBool = AtomicBool::new(false);

/// Counts a large request, and returns whether it is refused.
fn refused() -> bool {
    !PAUSED.load(Relaxed) && LEFT.fetch_sub(1, Relaxed) == 0
}

struct Failing;

#[global_allocator]
static ALLOCATOR: Failing = Failing;

// SAFETY: the system's allocator does the work. It may refuse a request at any time.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= ALLOCATION_MIN && refused() {
            return ptr::null_mut();
        }
        // SAFETY: the caller's promise about the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory is from `alloc`, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Takes the place of the C library's function for the crates that are linked into this program.
#[unsafe(no_mangle)]
extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off64_t,
) -> *mut c_void {
    if len >= MAPPING_MIN && refused() {
        nix::errno::Errno::ENOMEM.set();
        return MAP_FAILED;
    }
    // The system reads all 64 bits of each.
    let [protection, flags, file] = [protection, flags, file].map(c_long::from);
    // SAFETY: the caller's arguments, for the call that they are meant for.
    let mapped =
        unsafe { libc::syscall(libc::SYS_mmap, address, len, protection, flags, file, offset) };
    ptr::with_exposed_provenance_mut(mapped as usize)
}

/// Held by a test, since faults are for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

const TOKENS_MAX: usize = 20;

/// Opens, plans, answers, saves and restores, with a cache on disk. Returns both answers.
fn run(model: &Path) -> Result<[Vec<Token>; 2], String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let folder = folder.path();
    let named = |e: &dyn std::error::Error| e.to_string();
    let model = Model::open(model).map_err(|e| named(&e))?;
    let f32 = CacheType::F32;
    let settings = Settings {
        context: Some(1024.into()),
        keys: f32,
        values: f32,
        micro_batch: 64,
        ..Settings::default()
    };
    let plan = Plan::new(&model, &settings).map_err(|e| named(&e))?;
    PAUSED.store(true, Relaxed);
    let tokenizer = model.tokenizer();
    PAUSED.store(false, Relaxed);
    let tokenizer = tokenizer.map_err(|e| named(&e))?;
    let prompt: Vec<_> = (0..600).map(|i| 1 + (i * i + 7 * i) % 37).collect();
    let request = |prompt: &[Token]| Request {
        sampling: sample::Settings { seed: Some(1), ..sample::Settings::default() },
        limits: Limits { tokens_max: Some(TOKENS_MAX), ignore_end: true, ..Limits::default() },
        ..Request::new(prompt.to_vec())
    };
    let scheduling = || Scheduling {
        // For sequences that are being saved.
        cache_bytes: 8 << 20,
        disk: Some((folder.join("cache"), u64::MAX)),
        ..Scheduling::default()
    };
    let mut scheduler = plan.scheduler(&model, tokenizer, scheduling()).map_err(|e| named(&e))?;
    let answer = scheduler.answer(request(&prompt), &mut |_| ControlFlow::Continue(()));
    let first = answer.map_err(|e| named(&e))?.tokens;
    let file = folder.join("slot");
    let (engine, sequence) = scheduler.slot(0, 0).map_err(|e| named(&e))?;
    let written = regular_file(&file, |file| engine.save(sequence, 7, usize::MAX, file));
    written.map_err(|e| named(&e))?;
    let opened = File::open(&file).map_err(|e| named(&e))?;
    let bytes = opened.metadata().map_err(|e| named(&e))?.len();
    engine.restore(sequence, 7, BufReader::new(opened), bytes).map_err(|e| named(&e))?;
    scheduler.close();

    let mut scheduler = plan.scheduler(&model, tokenizer, scheduling()).map_err(|e| named(&e))?;
    let longer = [&prompt[..], &first].concat();
    let answer = scheduler.answer(request(&longer), &mut |_| ControlFlow::Continue(()));
    let second = answer.map_err(|e| named(&e))?.tokens;
    scheduler.close();
    Ok([first, second])
}

#[test]
fn every_refusal_is_an_error_and_the_next_run_succeeds() {
    let _alone = ALONE.lock().unwrap();
    let model = tiny_reader(7, true);
    let run = || run(model.path());
    let expected = run().unwrap();
    assert_eq!(expected.each_ref().map(Vec::len), [TOKENS_MAX; 2]);
    let (mut errors, mut tolerated) = (0, 0);
    for n in 0.. {
        LEFT.store(n, Relaxed);
        let result = run();
        let reached = LEFT.swap(i64::MAX, Relaxed) < 0;
        match result {
            Ok(answers) => {
                assert_eq!(answers, expected, "request {n}");
                tolerated += usize::from(reached);
            }
            Err(message) => {
                assert!(reached, "request {n}: {message}");
                let names_memory = ["of memory", "Cannot allocate memory", "out of memory"];
                assert!(names_memory.iter().any(|part| message.contains(part)), "{n}: {message}");
                errors += 1;
                assert_eq!(run().unwrap(), expected, "after request {n}");
            }
        }
        if !reached {
            assert!(errors > 10, "{n} requests, {errors} errors, {tolerated} tolerated");
            println!("{n} requests: {errors} errors, {tolerated} tolerated");
            return;
        }
    }
}
