"""What the watchdog runs in processes of their own, each as `python -m watchdogd.programs.NAME`."""
