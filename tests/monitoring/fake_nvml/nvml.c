/* A libnvidia-ml.so.1 small enough to read: what it answers stands in the file named by FAKE_NVML_STATE, read anew when it
 * has changed, one "key value" a line. "gpus N" counts the cards; "<index>.<field> value" answers for one of them; a field that is
 * missing is NVML_ERROR_NOT_SUPPORTED; "<index>.lost 1" makes every call on that card NVML_ERROR_GPU_IS_LOST. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };
typedef struct { int index; } Device;
static Device devices[16];

static char state[1 << 16];

/* Reads the state again where the file has changed: a driver answers from memory. */
static void refresh(void) {
    static struct stat before;
    struct stat now;
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file;
    if (stat(path, &now) || (now.st_size == before.st_size && now.st_mtim.tv_sec == before.st_mtim.tv_sec && now.st_mtim.tv_nsec == before.st_mtim.tv_nsec && now.st_ino == before.st_ino))
        return;
    before = now;
    file = fopen(path, "r");
    state[file ? fread(state, 1, sizeof state - 1, file) : 0] = 0;
    if (file) fclose(file);
}

static int lookup(const char *key, char *value, size_t size) {
    size_t length = strlen(key);
    refresh();
    for (const char *line = state; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (!strncmp(line, key, length) && line[length] == ' ') {
            snprintf(value, size, "%.*s", (int)strcspn(line + length + 1, "\n"), line + length + 1);
            return 1;
        }
    return 0;
}

static int field(const Device *device, const char *name, char *value, size_t size) {
    char key[128];
    snprintf(key, sizeof key, "%d.lost", device->index);
    if (lookup(key, value, size)) return GPU_IS_LOST;
    snprintf(key, sizeof key, "%d.%s", device->index, name);
    return lookup(key, value, size) ? SUCCESS : NOT_SUPPORTED;
}

static int number(const Device *device, const char *name, unsigned long long *out) {
    char value[128];
    int status = field(device, name, value, sizeof value);
    if (status == SUCCESS) *out = strtoull(value, NULL, 0);
    return status;
}

static int small(const Device *device, const char *name, unsigned *out) {
    unsigned long long value;
    int status = number(device, name, &value);
    if (status == SUCCESS) *out = (unsigned)value;
    return status;
}

int nvmlInitWithFlags(unsigned flags) {
    char value[8];
    (void)flags;
    return lookup("no_driver", value, sizeof value) ? DRIVER_NOT_LOADED : SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case GPU_IS_LOST: return "GPU is lost";
    case NOT_SUPPORTED: return "Not Supported";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) { return snprintf(out, size, "580.65.06") < 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = 13010; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion(int *out) { return nvmlSystemGetCudaDriverVersion_v2(out); }

int nvmlDeviceGetCount_v2(unsigned *out) {
    char value[16] = "0";
    lookup("gpus", value, sizeof value);
    *out = (unsigned)atoi(value);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    devices[index].index = (int)index;
    *out = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetName(Device *device, char *out, unsigned size) { return field(device, "name", out, size); }
int nvmlDeviceGetUUID(Device *device, char *out, unsigned size) { return field(device, "uuid", out, size); }

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;

int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory *out) {
    int status = number(device, "memory_total", &out->total);
    out->reserved = 0;
    if (status == SUCCESS) status = number(device, "memory_reserved", &out->reserved); /* drivers before 510 cannot tell */
    if (status == SUCCESS) status = number(device, "memory_used", &out->used);
    if (status == SUCCESS) out->free = out->total - out->reserved - out->used;
    return status;
}

int nvmlDeviceGetMemoryInfo(Device *device, unsigned long long out[3]) { /* total, free, used: what is reserved counts as used */
    unsigned long long reserved = 0;
    int status = number(device, "memory_total", &out[0]);
    if (status == SUCCESS) status = number(device, "memory_used", &out[2]);
    number(device, "memory_reserved", &reserved);
    out[2] += reserved;
    if (status == SUCCESS) out[1] = out[0] - out[2];
    return status;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    int status = small(device, "mig", current);
    *pending = *current;
    return status;
}

int nvmlDeviceGetUtilizationRates(Device *device, unsigned out[2]) {
    out[1] = 0;
    return small(device, "utilization", &out[0]);
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *out) { (void)sensor; return small(device, "temperature", out); }
int nvmlDeviceGetPowerUsage(Device *device, unsigned *out) { return small(device, "power_milliwatts", out); }
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *out) { return small(device, "power_limit_milliwatts", out); }
int nvmlDeviceGetClockInfo(Device *device, int clock, unsigned *out) { return small(device, clock == 1 ? "sm_clock" : "memory_clock", out); }
int nvmlDeviceGetTotalEccErrors(Device *device, int kind, int counter, unsigned long long *out) {
    return counter == 0 ? number(device, kind == 1 ? "ecc_uncorrected" : "ecc_corrected", out) : NOT_SUPPORTED;
}

/* Counters of traffic: PCIe in bytes, NVLink in KiB over all links. */
typedef struct { unsigned field, scope; long time, latency; unsigned kind, status; unsigned long long value; } Field;
int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
    char value[128], lost[32];
    snprintf(lost, sizeof lost, "%d.lost", device->index);
    if (lookup(lost, value, sizeof value)) return GPU_IS_LOST;
    for (int each = 0; each < count; each++) {
        unsigned id = fields[each].field;
        const char *name = id == 197 ? "pcie_tx_bytes" : id == 198 ? "pcie_rx_bytes" : id == 138 ? "nvlink_tx_kib" : "nvlink_rx_kib";
        fields[each].kind = 3;
        fields[each].status = (unsigned)number(device, name, &fields[each].value);
    }
    return SUCCESS;
}
int nvmlDeviceGetPcieThroughput(Device *device, int counter, unsigned *out) {
    return small(device, counter == 0 ? "pcie_tx_kbps" : "pcie_rx_kbps", out);
}
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *out) { return number(device, "throttle", out); }

/* "processes pid:bytes pid:bytes" */
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *out) {
    char value[128];
    int status = field(device, "processes", value, sizeof value);
    unsigned found = 0, room = out ? *count : 0;
    if (status != SUCCESS) return status;
    for (char *word = strtok(value, " "); word; word = strtok(NULL, " "), found++)
        if (found < room) {
            out[found].gpu_instance = out[found].compute_instance = 0xFFFFFFFF;
            sscanf(word, "%u:%llu", &out[found].pid, &out[found].bytes);
        }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
