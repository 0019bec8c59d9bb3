package cli

import (
	"os"

	"github.com/spf13/cobra"
)

// needFile makes a usage error of a command line that names a file which is not there, or a folder.
func needFile(cmd *cobra.Command, file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return usagef(cmd, "there is no file %q", file)
	case info.IsDir():
		return usagef(cmd, "%q is a folder, and a file is needed", file)
	}
	return nil
}

// needFolder makes the flag that names a folder refuse one that is not there, or no folder, as a usage error.
func needFolder(cmd *cobra.Command, flag string) {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		f := cmd.Flags().Lookup(flag)
		if !f.Changed {
			return nil
		}
		info, err := os.Stat(f.Value.String())
		switch {
		case err != nil:
			return usagef(cmd, "--%s: there is no folder %q", flag, f.Value)
		case !info.IsDir():
			return usagef(cmd, "--%s: %q is no folder", flag, f.Value)
		}
		return nil
	}
}
