// SPDX-License-Identifier: GPL-2.0-only
/*
 * fde_rapl_sim: RAPL energy counters of a virtual machine, from a power model, and its temperature.
 *
 * Registers the powercap control type "intel-rapl" with the zones package-0 and, below it, dram, and
 * with packages=2 also package-1 and its dram, laid out as intel_rapl lays them out on hardware. Nothing
 * runs between reads: a counter is computed when energy_uj is read, from the time since loading and
 * the busy time of the CPUs:
 *
 *     energy_uj = (idle_mw * (wall_us - stolen_us) + busy_mw_per_cpu * busy_us) / 1000
 *     busy_us = sum over CPUs (wall_us - idle_us) - stolen_cpu_us
 *
 * because 1 mW for 1 us is 1 nJ. Stolen time is time in which the host did not run the machine: the lab's
 * meter writes it into a shared page (lab/host_time.py); it also becomes steal in /proc/stat. Two packages
 * share the energy, and so do their memories. The counter wraps past max_energy_range_uj, as the
 * hardware's does.
 *
 * Also registers the thermal zone x86_pkg_temp, whose temperature is what temp_mc says at the moment.
 */
#include <linux/cpumask.h>
#include <linux/kernel_stat.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/percpu.h>
#include <linux/powercap.h>
#include <linux/thermal.h>
#include <linux/tick.h>

static uint package_idle_mw = 5000;
module_param(package_idle_mw, uint, 0444);
MODULE_PARM_DESC(package_idle_mw, "power of the package with all CPUs idle, mW");

static uint package_busy_mw_per_cpu = 10000;
module_param(package_busy_mw_per_cpu, uint, 0444);
MODULE_PARM_DESC(package_busy_mw_per_cpu, "power that one busy CPU adds to the package, mW");

static uint dram_idle_mw = 1000;
module_param(dram_idle_mw, uint, 0444);
MODULE_PARM_DESC(dram_idle_mw, "power of the memory with all CPUs idle, mW");

static uint dram_busy_mw_per_cpu = 500;
module_param(dram_busy_mw_per_cpu, uint, 0444);
MODULE_PARM_DESC(dram_busy_mw_per_cpu, "power that one busy CPU adds to the memory, mW");

/* 2^32 units of 2^-14 J, less 1 uJ: the modelled counter counts single uJ, not such units. */
static unsigned long long max_energy_range_uj = 262143999999ULL;
module_param(max_energy_range_uj, ullong, 0444);
MODULE_PARM_DESC(max_energy_range_uj, "last value of the counters before they start again at 0, uJ");

static uint packages = 1;
module_param(packages, uint, 0444);
MODULE_PARM_DESC(packages, "number of packages, 1 or 2, among which the modelled energy is shared out");

static uint second_package_percent = 40;
module_param(second_package_percent, uint, 0444);
MODULE_PARM_DESC(second_package_percent, "share of package-1 and its memory, of two packages, percent");

static bool report_steal;
module_param(report_steal, bool, 0444);
MODULE_PARM_DESC(report_steal, "whether steal of /proc/stat is what the host's page says");

static int temp_mc = 45000;
module_param(temp_mc, int, 0644);
MODULE_PARM_DESC(temp_mc, "temperature of the package, 0.001 degrees Celsius; may be written");

/* With more than this the sum of nanojoules would overflow within years instead of centuries. */
#define MAX_MW 1000000U

/* The largest step of a CPU's iowait time between two reads that counts as elapsed time. */
#define STEP_US 200
#define TRIES 8

#define MAX_PACKAGES 2

struct sim_zone {
	struct powercap_zone zone;
	const uint *idle_mw;
	const uint *busy_mw_per_cpu;
	uint percent; /* share of the energy of all zones of this kind */
	struct mutex lock; /* guards last_nj */
	u64 last_nj;
	bool registered;
};

static struct sim_zone package[MAX_PACKAGES];
static struct sim_zone dram[MAX_PACKAGES];

static struct powercap_control_type *control_type;
static struct thermal_zone_device *thermal_zone;
static u64 wall_start_us;
static DEFINE_PER_CPU(s64, busy_start_us);

/* Time since some moment that the host withheld: from CPUs that had work, and from the machine. */
struct stolen {
	u64 cpu_us;
	u64 machine_us;
};

static struct stolen stolen_start;

#ifdef CONFIG_UML
/* lab/kernel/uml.patch maintains the page; the only CPU is not asleep while it reads this. */
#include <os.h>

static s64 cpu_busy_us(int cpu, u64 *now_us)
{
	u64 now_ns = ktime_get_ns();

	*now_us = div_u64(now_ns, NSEC_PER_USEC);
	return (s64)div_u64(now_ns - READ_ONCE(um_host_page->slept_ns), NSEC_PER_USEC);
}

static void map_host_page(void)
{
}

static void unmap_host_page(void)
{
}

static struct stolen read_host_page(void)
{
	return (struct stolen){
		.cpu_us = div_u64(READ_ONCE(um_host_page->stolen_cpu_ns), NSEC_PER_USEC),
		.machine_us = div_u64(READ_ONCE(um_host_page->stolen_ns), NSEC_PER_USEC),
	};
}
#else
/* QEMU's ivshmem-plain, whose BAR 2 is the memory (its docs/specs/ivshmem-spec.rst); without the device
 * stolen time is 0. */
#define IVSHMEM_VENDOR 0x1af4
#define IVSHMEM_DEVICE 0x1110
#define IVSHMEM_BAR 2
#define STOLEN_CPU_NS 8 /* byte offsets in the page */
#define STOLEN_NS 16

static struct pci_dev *host_device;
static void __iomem *host_page;

static void map_host_page(void)
{
	host_device = pci_get_device(IVSHMEM_VENDOR, IVSHMEM_DEVICE, NULL);
	if (host_device && !pci_enable_device(host_device))
		host_page = pci_iomap(host_device, IVSHMEM_BAR, PAGE_SIZE);
}

static void unmap_host_page(void)
{
	if (host_page)
		pci_iounmap(host_device, host_page);
	pci_dev_put(host_device);
}

static struct stolen read_host_page(void)
{
	if (!host_page)
		return (struct stolen){};
	return (struct stolen){
		.cpu_us = div_u64(readq(host_page + STOLEN_CPU_NS), NSEC_PER_USEC),
		.machine_us = div_u64(readq(host_page + STOLEN_NS), NSEC_PER_USEC),
	};
}

/*
 * Return the time that a CPU has not been idle, up to an unknown constant, and the time of the reading.
 *
 * The kernel counts idle time with and without outstanding I/O separately, and adds the current idle
 * stretch to the one that applies at the moment of reading. If that changes between the two reads, the
 * stretch is counted twice or not at all; reading one of them again shows it.
 */
static s64 cpu_busy_us(int cpu, u64 *now_us)
{
	u64 idle, iowait, again;
	int try;

	for (try = 0; try < TRIES; try++) {
		iowait = get_cpu_iowait_time_us(cpu, NULL);
		idle = get_cpu_idle_time_us(cpu, now_us);
		again = get_cpu_iowait_time_us(cpu, NULL);
		if (again - iowait <= STEP_US)
			break;
	}
	return (s64)(*now_us - idle - iowait);
}
#endif

static u64 grown(u64 now, u64 then)
{
	return now > then ? now - then : 0;
}

/* Set steal in /proc/stat, if no hypervisor does: stolen CPU time, divided equally among the CPUs. */
static void tell_steal(u64 cpu_us)
{
	u64 each_ns = div_u64(cpu_us, num_online_cpus()) * NSEC_PER_USEC;
	int cpu;

	if (report_steal)
		for_each_online_cpu(cpu)
			kcpustat_cpu(cpu).cpustat[CPUTIME_STEAL] = each_ns;
}

/* Return, in us since loading, the time that the machine was not stopped and the busy time of its CPUs. */
static void used_us(u64 *awake_us, u64 *busy_us)
{
	struct stolen stolen = read_host_page();
	s64 sum = 0;
	u64 now_us;
	int cpu;

	for_each_online_cpu(cpu)
		sum += cpu_busy_us(cpu, &now_us) - per_cpu(busy_start_us, cpu);
	tell_steal(stolen.cpu_us);
	stolen.cpu_us = grown(stolen.cpu_us, stolen_start.cpu_us);
	stolen.machine_us = grown(stolen.machine_us, stolen_start.machine_us);
	*busy_us = sum > 0 ? grown(sum, stolen.cpu_us) : 0;
	*awake_us = grown(now_us - wall_start_us, stolen.machine_us);
}

static struct sim_zone *to_sim(struct powercap_zone *zone)
{
	return container_of(zone, struct sim_zone, zone);
}

static int sim_energy_uj(struct powercap_zone *zone, u64 *energy_uj)
{
	struct sim_zone *sim = to_sim(zone);
	u64 awake, busy, nj, uj;

	mutex_lock(&sim->lock);
	used_us(&awake, &busy);
	nj = awake * *sim->idle_mw + busy * *sim->busy_mw_per_cpu;
	nj = mul_u64_u32_div(nj, sim->percent, 100);
	/* CPUs are read one after another, and the page reports stolen time some ms late: the counter may
	 * pause but never decreases. */
	if (nj > sim->last_nj)
		sim->last_nj = nj;
	uj = div_u64(sim->last_nj, 1000);
	mutex_unlock(&sim->lock);

	if (max_energy_range_uj < U64_MAX)
		div64_u64_rem(uj, max_energy_range_uj + 1, energy_uj);
	else
		*energy_uj = uj;
	return 0;
}

static int sim_max_energy_range_uj(struct powercap_zone *zone, u64 *range_uj)
{
	*range_uj = max_energy_range_uj;
	return 0;
}

static int sim_release(struct powercap_zone *zone)
{
	return 0; /* the zones are static */
}

static const struct powercap_zone_ops zone_ops = {
	.get_energy_uj = sim_energy_uj,
	.get_max_energy_range_uj = sim_max_energy_range_uj,
	.release = sim_release,
};

/* powercap requires these four even for a zone without constraints; none is ever called. */
static int no_limit_get(struct powercap_zone *zone, int id, u64 *value)
{
	return -EOPNOTSUPP;
}

static int no_limit_set(struct powercap_zone *zone, int id, u64 value)
{
	return -EOPNOTSUPP;
}

static const struct powercap_zone_constraint_ops no_constraints = {
	.get_power_limit_uw = no_limit_get,
	.set_power_limit_uw = no_limit_set,
	.get_time_window_us = no_limit_get,
	.set_time_window_us = no_limit_set,
};

static int register_sim(struct sim_zone *sim, const char *name, struct powercap_zone *parent)
{
	struct powercap_zone *zone;

	mutex_init(&sim->lock);
	zone = powercap_register_zone(&sim->zone, control_type, name, parent, &zone_ops, 0,
				      &no_constraints);
	if (IS_ERR(zone))
		return PTR_ERR(zone);
	sim->registered = true;
	return 0;
}

static int register_package(int n)
{
	static const char *const names[MAX_PACKAGES] = { "package-0", "package-1" };
	uint second = packages > 1 ? second_package_percent : 0;
	int err;

	package[n].idle_mw = &package_idle_mw;
	package[n].busy_mw_per_cpu = &package_busy_mw_per_cpu;
	dram[n].idle_mw = &dram_idle_mw;
	dram[n].busy_mw_per_cpu = &dram_busy_mw_per_cpu;
	package[n].percent = dram[n].percent = n ? second : 100 - second;
	err = register_sim(&package[n], names[n], NULL);
	return err ? err : register_sim(&dram[n], "dram", &package[n].zone);
}

static void unregister_all(void)
{
	int n;

	for (n = MAX_PACKAGES - 1; n >= 0; n--) {
		if (dram[n].registered)
			powercap_unregister_zone(control_type, &dram[n].zone);
		if (package[n].registered)
			powercap_unregister_zone(control_type, &package[n].zone);
	}
	powercap_unregister_control_type(control_type);
}

static int sim_get_temp(struct thermal_zone_device *zone, int *temp)
{
	*temp = READ_ONCE(temp_mc);
	return 0;
}

static const struct thermal_zone_device_ops thermal_ops = {
	.get_temp = sim_get_temp,
};

/* Without trip points, because nothing acts on the temperature, and without a hwmon device. */
static int register_thermal(void)
{
	static const struct thermal_zone_params parameters = { .no_hwmon = true };
	int err;

	thermal_zone = thermal_tripless_zone_device_register("x86_pkg_temp", NULL, &thermal_ops,
							     &parameters);
	if (IS_ERR(thermal_zone))
		return PTR_ERR(thermal_zone);
	err = thermal_zone_device_enable(thermal_zone);
	if (err)
		thermal_zone_device_unregister(thermal_zone);
	return err;
}

static int check_parameters(void)
{
	if (!max_energy_range_uj) {
		pr_err("fde_rapl_sim: max_energy_range_uj must be at least 1\n");
		return -EINVAL;
	}
	if (packages < 1 || packages > MAX_PACKAGES || second_package_percent > 100) {
		pr_err("fde_rapl_sim: there are 1 or 2 packages, and the second takes 0 to 100 percent\n");
		return -EINVAL;
	}
	if (package_idle_mw > MAX_MW || package_busy_mw_per_cpu > MAX_MW || dram_idle_mw > MAX_MW ||
	    dram_busy_mw_per_cpu > MAX_MW) {
		pr_err("fde_rapl_sim: no power may be above %u mW\n", MAX_MW);
		return -EINVAL;
	}
	if (get_cpu_idle_time_us(0, NULL) == U64_MAX) {
		pr_err("fde_rapl_sim: this kernel keeps no precise idle time (it needs nohz)\n");
		return -EOPNOTSUPP;
	}
	return 0;
}

static int __init sim_init(void)
{
	uint n;
	int cpu, err;

	err = check_parameters();
	if (err)
		return err;

	map_host_page();
	stolen_start = read_host_page();
	for_each_online_cpu(cpu)
		per_cpu(busy_start_us, cpu) = cpu_busy_us(cpu, &wall_start_us);

	control_type = powercap_register_control_type(NULL, "intel-rapl", NULL);
	if (IS_ERR(control_type)) {
		unmap_host_page();
		return PTR_ERR(control_type);
	}

	for (n = 0; n < packages && !err; n++)
		err = register_package(n);
	if (!err)
		err = register_thermal();
	if (err) {
		unregister_all();
		unmap_host_page();
		return err;
	}
	pr_info("fde_rapl_sim: modelled RAPL zones of %u package(s); nothing here is measured\n", packages);
	return 0;
}

static void __exit sim_exit(void)
{
	thermal_zone_device_unregister(thermal_zone);
	unregister_all();
	unmap_host_page();
}

module_init(sim_init);
module_exit(sim_exit);

MODULE_DESCRIPTION("RAPL counters and temperature of a virtual machine, from a power model");
MODULE_LICENSE("GPL");
