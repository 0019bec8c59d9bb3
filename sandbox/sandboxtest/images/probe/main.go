// Command probe is the one program of the scratch test image. Its first argument says what to do:
//
//	sleep           until killed
//	id              print the user id
//	stdin           print how many bytes standard input held
//	stubborn FILE   ignore SIGTERM, leave a child in its own session that does the same, and append to FILE until killed
//	background      leave a child that holds the output open, and end
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	mode := "sleep"
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	switch mode {
	case "id":
		fmt.Println(os.Getuid())
	case "stdin":
		n, _ := io.Copy(io.Discard, os.Stdin)
		fmt.Println(n)
	case "stubborn":
		again("write", os.Args[2])
		write(os.Args[2])
	case "write":
		write(os.Args[2])
	case "background":
		again("sleep")
		fmt.Println("done")
	default:
		for {
			time.Sleep(time.Hour)
		}
	}
}

func again(args ...string) {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func write(file string) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	for {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			f.WriteString("x")
			f.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
}
