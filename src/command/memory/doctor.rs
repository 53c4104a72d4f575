//! MEMORY DOCTOR: faults of the server's memory in words, with advice.

use super::overview::{Growth, Overview};

const MIB: u64 = 1 << 20;

/// Below this many bytes in use there is no diagnosis: ratios of small numbers are noise.
const ENOUGH_BYTES: u64 = 5 * MIB;

/// Bytes by which one measure of memory must exceed another to be reported.
const WORTH_BYTES: i64 = 10 << 20;

/// Average bytes per client from which clients are reported.
const CLIENT_BYTES: u64 = 200 * 1024;

/// The number of scripts from which scripts are reported.
const SCRIPTS: u64 = 1_000;

/// A fault and its text in the report.
struct Finding {
    is_there: fn(&Overview) -> bool,
    title: &'static str,
    advice: &'static str,
}

const FINDINGS: [Finding; 7] = [
    Finding {
        is_there: |memory| memory.peak as f64 > 1.5 * memory.used as f64,
        title: "Peak",
        advice: "The server once used more than 1.5 times as much memory as now. That does no harm. Freed memory \
                 returns to the system by itself; MEMORY PURGE returns the rest.",
    },
    Finding {
        is_there: |memory| exceeds(memory.total(), 1.4),
        title: "Resident memory",
        advice: "The process takes more than 1.4 times the memory in use. If one part of the difference stands \
                 out, it follows below.",
    },
    Finding {
        is_there: |memory| exceeds(memory.fragmentation(), 1.1),
        title: "Places between keys",
        advice: "The free places between keys add more than a tenth to the memory in use. Only new keys of about \
                 the same size can fill them. A restart packs the keys together.",
    },
    Finding {
        is_there: |memory| exceeds(memory.retention(), 1.1),
        title: "Allocator",
        advice: "The allocator retains more than a tenth beyond the memory it has handed out. After much was freed, \
                 MEMORY PURGE returns what it can; MEMORY MALLOC-STATS shows details.",
    },
    Finding {
        is_there: |memory| exceeds(memory.program(), 1.1),
        title: "Program",
        advice: "Files mapped into memory, such as the program, add more than a tenth to the data.",
    },
    Finding {
        is_there: |memory| memory.clients / memory.client_count.max(1) > CLIENT_BYTES,
        title: "Clients",
        advice: "A client holds more than 200 KiB on average: replies that it does not read, a long transaction, \
                 or a large command that has arrived in part. CLIENT LIST shows which client (tot-mem).",
    },
    Finding {
        is_there: |memory| memory.script_count > SCRIPTS,
        title: "Scripts",
        advice: "More than 1000 scripts are loaded. Programs that generate a new script for each call should pass the \
                 varying parts as KEYS and ARGV; SCRIPT FLUSH removes all scripts, SCRIPT LIST shows them.",
    },
];

/// Returns the report.
pub(super) fn report(memory: &Overview) -> String {
    if memory.used < ENOUGH_BYTES {
        return "The server holds too little for a diagnosis: less than 5 MiB is in use.\n".to_owned();
    }
    let findings: Vec<&Finding> = FINDINGS.iter().filter(|finding| (finding.is_there)(memory)).collect();
    if findings.is_empty() {
        return "No problem with the memory was found.\n".to_owned();
    }
    let lines = findings.iter().map(|Finding { title, advice, .. }| format!("\n * {title}: {advice}\n"));
    format!("Findings about the server's memory:\n{}", lines.collect::<String>())
}

fn exceeds(growth: Growth, ratio: f64) -> bool {
    growth.ratio() > ratio && growth.bytes() > WORTH_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> Overview {
        Overview {
            used: 100 * MIB,
            peak: 150 * MIB,
            startup: MIB,
            active: 108 * MIB,
            resident: 112 * MIB,
            process: 120 * MIB,
            clients: 10 * CLIENT_BYTES,
            client_count: 10,
            log: 0,
            scripts: 0,
            script_count: SCRIPTS,
            libraries: 0,
            acl: 0,
            history: 0,
            lua: 0,
            databases: Vec::new(),
        }
    }

    #[test]
    fn each_fault_is_reported_alone() {
        assert_eq!(report(&healthy()), "No problem with the memory was found.\n");
        assert!(report(&Overview { used: ENOUGH_BYTES - 1, ..healthy() }).contains("too little"));
        type Spoil = fn(&mut Overview);
        let faults: [(&str, Spoil); 7] = [
            ("Peak", |memory| memory.peak = 151 * MIB),
            ("Resident memory", |memory| (memory.resident, memory.process) = (118 * MIB, 141 * MIB)),
            ("Places between keys", |memory| memory.active = 111 * MIB),
            ("Allocator", |memory| memory.resident = 119 * MIB),
            ("Program", |memory| memory.process = 124 * MIB),
            ("Clients", |memory| memory.clients += 10),
            ("Scripts", |memory| memory.script_count += 1),
        ];
        for (title, spoil) in faults {
            let mut memory = healthy();
            spoil(&mut memory);
            assert!(report(&memory).contains(&format!("\n * {title}: ")), "{title}: {}", report(&memory));
        }
    }

    /// Few bytes are not a fault, whatever their ratio.
    #[test]
    fn a_few_bytes_are_no_fault() {
        let memory = Overview {
            used: 6 * MIB,
            peak: 6 * MIB,
            active: 7 * MIB,
            resident: 9 * MIB,
            process: 16 * MIB,
            ..healthy()
        };
        assert_eq!(report(&memory), "No problem with the memory was found.\n");
    }
}
