//! Metrics of the process itself, by the names that all Prometheus clients use: memory, CPU, open files and the
//! time of its start. They are read at each scrape, from `/proc`.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The collector.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessMetrics;

/// What is read at a scrape.
#[derive(Debug, Clone, Copy)]
struct ProcessUse {
    cpu_seconds: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    open_files: f64,
    most_files: f64,
    started_at: f64,
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(used) = read() else {
            return Ok(());
        };
        let help = "User and system CPU time of the process";
        let name = "process_cpu_seconds";
        let counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(used.cpu_seconds).encode(counter)?;
        let gauges = [
            (
                "process_resident_memory_bytes",
                "Resident memory of the process",
                used.resident_bytes,
            ),
            (
                "process_virtual_memory_bytes",
                "Virtual memory of the process",
                used.virtual_bytes,
            ),
            ("process_open_fds", "Open file descriptors", used.open_files),
            (
                "process_max_fds",
                "Most file descriptors that may be open",
                used.most_files,
            ),
            (
                "process_start_time_seconds",
                "When the process started",
                used.started_at,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(gauge)?;
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
// For display only.
#[allow(clippy::cast_precision_loss)]
fn read() -> Option<ProcessUse> {
    use procfs::process::{LimitValue, Process};

    let own = Process::myself().ok()?;
    let stat = own.stat().ok()?;
    let ticks = procfs::ticks_per_second() as f64;
    let most = match own.limits().ok()?.max_open_files.soft_limit {
        LimitValue::Value(most) => most as f64,
        LimitValue::Unlimited => f64::INFINITY,
    };
    Some(ProcessUse {
        cpu_seconds: (stat.utime + stat.stime) as f64 / ticks,
        resident_bytes: stat.rss as f64 * procfs::page_size() as f64,
        virtual_bytes: stat.vsize as f64,
        open_files: own.fd_count().ok()? as f64,
        most_files: most,
        started_at: procfs::boot_time_secs().ok()? as f64 + stat.starttime as f64 / ticks,
    })
}

#[cfg(not(target_os = "linux"))]
fn read() -> Option<ProcessUse> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metrics::Registry;

    #[test]
    fn the_process_shows_memory_cpu_files_and_its_start() {
        let registry = Registry::new();
        registry.register_unprefixed(ProcessMetrics);
        let text = registry.encode().unwrap();
        let value = |name: &str| -> f64 {
            let line = text
                .lines()
                .find(|line| line.starts_with(&format!("{name} ")));
            let (_, value) = line.unwrap().split_once(' ').unwrap();
            value.parse().unwrap()
        };
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_resident_memory_bytes") > 1e6, "{text}");
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        let now = jiff::Timestamp::now().as_second();
        let started = value("process_start_time_seconds");
        // A boot time is a whole second, and tests run for less than an hour.
        assert!(
            (now as f64 - started).abs() < 3_600.0,
            "{started}, now {now}"
        );
        assert!(text.ends_with("# EOF\n"));
    }
}
