// Command grpc-go calls a podresources socket with the grpc-go that it was built with: main SOCKET FORM NAMESPACE POD.
//
// The replies are taken as bytes, so that one source fits every version: only grpc-go's own API of 2020 is used, and nothing of
// the call differs from a generated client's. One JSON line per call; see ../README.md.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

const (
	deadline    = 10 * time.Second
	maxReply    = 16 << 20
	unknownName = "no-such-pod"
)

type line struct {
	Client string `json:"client"`
	Form   string `json:"form"`
	Method string `json:"method"`
	Code   int    `json:"code"`
	Text   string `json:"text"`
	Reply  string `json:"reply"`
}

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

// dial connects as the named form does. "unix" leaves everything to grpc-go; "path" is what most node agents do: a dialer of
// their own, and the path as the target. "authority=VALUE" sends that value as :authority.
func dial(socket, form string) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{grpc.WithInsecure(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply))}
	dialer := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dialUnix(ctx, socket) })
	authority := strings.TrimPrefix(form, "authority=")
	switch {
	case form == "unix":
		return grpc.Dial("unix://"+socket, options...)
	case form == "path":
		return grpc.Dial(socket, append(options, grpc.WithContextDialer(dialUnix))...)
	case form == "passthrough":
		return grpc.Dial("passthrough:///"+socket, append(options, grpc.WithContextDialer(dialUnix))...)
	case authority != form:
		return grpc.Dial("passthrough:///podresources", append(options, dialer, grpc.WithAuthority(authority))...)
	}
	return nil, fmt.Errorf("unknown form %q: unix, path, passthrough, authority=VALUE", form)
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: main SOCKET FORM NAMESPACE POD")
		os.Exit(64)
	}
	socket, form, namespace, pod := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	connection, err := dial(socket, form)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer connection.Close()

	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for _, call := range []struct {
		name, path string
		request    message
	}{
		{"List", "/v1.PodResourcesLister/List", nil},
		{"GetAllocatableResources", "/v1.PodResourcesLister/GetAllocatableResources", nil},
		{"Get", "/v1.PodResourcesLister/Get", getRequest(namespace, pod)},
		{"Get unknown", "/v1.PodResourcesLister/Get", getRequest(namespace, unknownName)},
		{"v1alpha1 List", "/v1alpha1.PodResourcesLister/List", nil},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		var reply message
		err := connection.Invoke(ctx, call.path, &call.request, &reply)
		cancel()
		state, _ := status.FromError(err)
		if err := out.Encode(line{"grpc-go " + grpc.Version, form, call.name, int(state.Code()), state.Message(), hex.EncodeToString(reply)}); err != nil {
			os.Exit(1)
		}
	}
}
