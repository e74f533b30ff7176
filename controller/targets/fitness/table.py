"""All checks of `fde check`, in the order in which they are printed."""

from __future__ import annotations

from controller.targets.fitness import controller_host, disks, machine, meters, reach, resolution
from controller.targets.fitness.diagnosis import Check, by_part

# Refusals of agent.preflight by the check that reports them.
SYSTEM = ("distribution", "machine", "no-systemd")
CRYPTSETUP = ("cryptsetup", "cryptsetup-offered", "cryptsetup-blocks", "cryptsetup-cipher")
PACKAGES = ("other-database", "no-mysql", "no-package", "programs")

TABLE: tuple[Check, ...] = (
    Check("secrets", "the secrets: rights, completeness", controller_host.secrets_file, False),
    Check("psid", "the PSID's form", controller_host.psid, False),
    Check("controller-room", "room where suites go", controller_host.room, False),
    Check("controller-sleep", "sleep of the controller", controller_host.sleep, False),
    Check("port-takers", "programs that open any port", controller_host.port_takers, False),
    Check("messages", "what its receivers need", controller_host.receivers, False),
    Check("ssh", "the way to the target", reach.ssh, False),
    Check("rights", "root on the target", reach.rights, refusals=("not-root",)),
    Check("system", "distribution, architecture, systemd, Python", reach.system, True, SYSTEM),
    Check("kernel", "what the kernel was built with", by_part("kernel", reach.kernel)),
    Check("cryptsetup", "its version, and Opal", reach.cryptsetup, True, CRYPTSETUP),
    Check("packages", "what is installed, and can be", reach.packages, True, PACKAGES),
    Check("assets", "the workloads' files, and their sums", by_part("assets", reach.assets)),
    Check("target-room", "room for results on the target", by_part("room_bytes", machine.room)),
    Check("rapl", "RAPL's zones, and that they count", machine.rapl),
    Check("origin", "measured or modelled", by_part("simulated_rapl", machine.origin)),
    Check("governor", "cpufreq's governor", machine.governor),
    Check("turbo", "frequencies beyond the base frequency", machine.turbo),
    Check("c-states", "idle states that are switched off", machine.idle_states),
    Check("load", "processor time that others take", machine.load),
    Check("memory", "memory that programs can have", machine.memory),
    Check("swap", "swap in use", machine.swap),
    Check("services", "services that disturb", by_part("disturbers", machine.services)),
    Check("power", "mains or battery", by_part("power", machine.power)),
    Check("target-sleep", "whether the target may fall asleep", by_part("sleep", machine.sleep)),
    Check("disks", "disks as named, unused, empty or ours", disks.disks),
    Check("opal", "Opal, and Block SID", disks.opal),
    Check("allow-tpm", "Opal commands on SATA", reach.allow_tpm, refusals=("allow-tpm",)),
    Check("smart", "health and heat of the disks", by_part("disks", disks.smart)),
    Check("disk-link", "speed and width of the disks' links", by_part("disks", disks.link)),
    Check("disk-saving", "APST and ALPM", by_part("disks", disks.saving)),
    Check("meter-settings", "the meters' entries", meters.settings, False),
    Check("meter-name", "names that survive replugging", meters.naming, False),
    Check("meter-range", "ranges that change by themselves", meters.accuracy, False),
    Check("meter-port", "the meters' ports open", meters.port, False),
    Check("meter-heard", "the meters send records", meters.heard, False),
    Check("meter-follows", "readings that follow a step of load", meters.follows),
    Check("meter-rate", "as often as they are set to", meters.rate, False),
    Check("meter-channels", "channels that can be what they are called", meters.channels, False),
    Check("resolution", "the smallest detectable change", resolution.resolution, False),
)
