/* A libnvidia-ml.so.1 small enough to read: what it answers stands in the file named by FAKE_NVML_STATE, read anew at each
 * call, one "key value" a line. "gpus N" counts the cards; "<index>.<field> value" answers for one of them; a field that is
 * missing is NVML_ERROR_NOT_SUPPORTED; "<index>.lost 1" makes every call on that card NVML_ERROR_GPU_IS_LOST. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };
typedef struct { int index; } Device;
static Device devices[16];

static int lookup(const char *key, char *value, size_t size) {
    FILE *file = fopen(getenv("FAKE_NVML_STATE"), "r");
    char line[256], name[128];
    int found = 0, consumed;
    while (file && !found && fgets(line, sizeof line, file))
        if (sscanf(line, "%127s %n", name, &consumed) == 1 && !strcmp(name, key)) {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, size, "%s", line + consumed);
            found = 1;
        }
    if (file) fclose(file);
    return found;
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

int nvmlDeviceGetUtilizationRates(Device *device, unsigned out[2]) {
    out[1] = 0;
    return small(device, "utilization", &out[0]);
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *out) { (void)sensor; return small(device, "temperature", out); }
int nvmlDeviceGetPowerUsage(Device *device, unsigned *out) { return small(device, "power_milliwatts", out); }
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *out) { return small(device, "power_limit_milliwatts", out); }
int nvmlDeviceGetClockInfo(Device *device, int clock, unsigned *out) { return small(device, clock == 1 ? "sm_clock" : "memory_clock", out); }
int nvmlDeviceGetTotalEccErrors(Device *device, int kind, int counter, unsigned long long *out) {
    return kind == 1 && counter == 0 ? number(device, "ecc_uncorrected", out) : NOT_SUPPORTED;
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
