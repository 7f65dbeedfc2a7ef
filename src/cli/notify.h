// What a service manager is told (systemd's Type=notify).
#ifndef KN_CLI_NOTIFY_H
#define KN_CLI_NOTIFY_H

// "READY=1", "RELOADING=1", "STOPPING=1", ...: to the socket that NOTIFY_SOCKET names; nothing happens where
// there is none.
void cli_notify(const char *state);

#endif
