"""All diagnoses, in the order of the page."""

from __future__ import annotations

from controller.target.doctor import controller_host, disks, machine, meters, reach, resolution
from controller.target.doctor.diagnosis import Row

TABLE: tuple[Row, ...] = (
    Row(
        "secrets",
        "the secrets: rights, completeness, strength",
        controller_host.secrets_file,
        False,
    ),
    Row("psid", "the PSID's form", controller_host.psid, False),
    Row("controller-room", "room where suites go", controller_host.room, False),
    Row(
        "controller-sleep", "whether this controller may fall asleep", controller_host.sleep, False
    ),
    Row(
        "port-takers", "programs that open others' serial ports", controller_host.port_takers, False
    ),
    Row("ssh", "the way to the target", reach.ssh, False),
    Row("rights", "root on the target", reach.rights),
    Row("system", "distribution, architecture, systemd, Python", reach.system),
    Row("kernel", "what the kernel was built with", reach.kernel),
    Row("cryptsetup", "its version, and Opal", reach.cryptsetup),
    Row("packages", "what is installed, and can be", reach.packages),
    Row("assets", "the workloads' files, and their sums", reach.assets),
    Row("target-room", "room for results on the target", machine.room),
    Row("rapl", "RAPL's zones, and that they count", machine.rapl),
    Row("origin", "measured or modelled, and rightly so called", machine.origin),
    Row("governor", "cpufreq's governor", machine.governor),
    Row("turbo", "frequencies beyond the base frequency", machine.turbo),
    Row("c-states", "idle states that are switched off", machine.idle_states),
    Row("load", "processor time that others take", machine.load),
    Row("memory", "memory that programs can have", machine.memory),
    Row("swap", "swap in use", machine.swap),
    Row("services", "services that disturb", machine.services),
    Row("power", "mains or battery", machine.power),
    Row("target-sleep", "whether the target may fall asleep", machine.sleep),
    Row("disks", "disks as named, unused, empty or ours", disks.disks),
    Row("opal", "Opal, and Block SID", disks.opal),
    Row("allow-tpm", "Opal commands on SATA", reach.allow_tpm),
    Row("smart", "health and heat of the disks", disks.smart),
    Row("disk-link", "speed and width of the disks' links", disks.link),
    Row("disk-saving", "APST and ALPM", disks.saving),
    Row("meter-settings", "the meters' entries", meters.settings, False),
    Row("meter-name", "names that survive replugging", meters.naming, False),
    Row("meter-range", "ranges that change by themselves", meters.accuracy, False),
    Row("meter-port", "the meters' ports open", meters.port, False),
    Row("meter-heard", "the meters send records", meters.heard, False),
    Row("meter-moves", "channels that do not stand still", meters.moves, False),
    Row("meter-rate", "as often as they are set to", meters.rate, False),
    Row("meter-channels", "channels that can be what they are called", meters.channels, False),
    Row("resolution", "the smallest detectable change", resolution.resolution, False),
)
